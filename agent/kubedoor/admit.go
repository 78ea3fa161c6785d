// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubedoor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/internal/httpproxy"
	"github.com/spokelet/spokelet/internal/impersonation"
)

var errDisabled = fmt.Errorf("%w: the door is not enabled", errNotAllowed)

// admit checks a request. The refusal is nil when it is admitted.
func (d *Door) admit(r *http.Request) (*admitted, *metav1.Status) {
	path, err := httpproxy.Path(r)
	if err != nil {
		return nil, statusFor(err)
	}
	protocol, err := httpproxy.UpgradeProtocol(r)
	if err != nil {
		return nil, statusFor(err)
	}
	p, err := impersonation.From(r.Header)
	if err != nil {
		return nil, statusFor(fmt.Errorf("%w: %w", errIdentity, err))
	}
	decide := d.admitUser
	if p.Kind == impersonation.Node {
		decide = d.admitNode
	}
	a, err := decide(r, path, protocol, p)
	if err != nil {
		return nil, statusFor(err)
	}
	return a, nil
}

// admitUser checks a request of a user of the hub.
func (d *Door) admitUser(r *http.Request, path, protocol string, p impersonation.Principal) (*admitted, error) {
	id, err := d.authorizeUser(p)
	if err != nil {
		return nil, err
	}
	if err := d.checkAllowed(r.Method, path); err != nil {
		return nil, err
	}
	return &admitted{path: path, protocol: protocol, identity: id}, nil
}

// authorizeUser returns the identity of a user of the hub, or refuses the user whatever
// the request is.
func (d *Door) authorizeUser(p impersonation.Principal) (identity, error) {
	if !d.cfg.Enabled {
		return identity{}, errDisabled
	}
	return d.mapUser(p)
}

// statusFor is the Status of a refusal: 400 for a malformed request, 404 for a
// pod that is not here, 403 for everything else, known or not.
func statusFor(err error) *metav1.Status {
	if errors.Is(err, httpproxy.ErrPath) || errors.Is(err, httpproxy.ErrUpgrade) {
		return newStatus(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	if errors.Is(err, errNoPod) {
		return newStatus(http.StatusNotFound, metav1.StatusReasonNotFound, err.Error())
	}
	return newStatus(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error())
}

func statusUnavailable(err error) *metav1.Status {
	if errors.Is(err, httpproxy.ErrUpgrade) {
		return statusFor(err)
	}
	return newStatus(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		fmt.Sprintf("API server of this cluster: %v", err))
}

func newStatus(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Code:     code,
		Reason:   reason,
		Message:  message,
	}
}

func writeStatus(w http.ResponseWriter, r *http.Request, s *metav1.Status) {
	body, err := json.Marshal(s)
	if err != nil {
		panic(http.ErrAbortHandler) // a Status of plain strings always marshals
	}
	w.Header().Set("Content-Type", "application/json")
	if r.ProtoMajor == 1 && len(r.Header["Upgrade"])+len(r.Header["Connection"]) > 0 {
		// What follows a refused upgrade on its connection is not HTTP. (In
		// HTTP/2 this header would end the session.)
		w.Header().Set("Connection", "close")
	}
	w.WriteHeader(int(s.Code))
	_, _ = w.Write(body)
}
