// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// origin is what tells who made an object: a work takes over what is there, and
// deletes nothing but what was made for a work.
type origin struct {
	// created: this very apply made it.
	created bool
	born    time.Time
	// sole: nobody but us has written it, its status aside.
	sole bool
}

// originOf reads an object, or the answer with that status code to its apply.
func originOf(obj metav1.Object, code int) origin {
	o := origin{created: code == http.StatusCreated, born: obj.GetCreationTimestamp().Time}
	for _, f := range obj.GetManagedFields() {
		if f.Subresource != "" {
			continue
		}
		// References alone are written by an update.
		if o.sole = f.Manager == FieldManager; !o.sole {
			return o
		}
	}
	return o
}

// made tells whether we made the object of that UID. Where the answer to an apply
// was lost, by a crash or on the way, it is ours only if it cannot have been there
// before: it is no older than the anchor, and nobody else has a field of it. Anchors of
// a policy that does not keep what was found do not say what was: there the same is asked
// of every object.
func (e *Engine) made(p Policy, t tracked, uid types.UID, o origin, a *anchor) bool {
	switch {
	case o.created || e.table.vouched(t.objectID, uid):
		return true
	case t.uid == uid && p.KeepsFound:
		return !t.adopted
	default:
		return (t.unsure || !p.KeepsFound) && o.sole && !o.born.Before(a.created)
	}
}

// settled is a tracked object after an apply that was answered.
func (e *Engine) settled(w *work, t tracked, uid types.UID, o origin) tracked {
	made := e.made(w.policy, t, uid, o, w.anchor)
	if made {
		e.table.vouch(t.objectID, uid)
	}
	t.adopted = w.policy.KeepsFound && !made
	t.uid, t.unsure, t.freed = uid, false, ""
	return t
}

// clearAdopted clears the adopted mark of objects that this agent made for another work,
// which may be known only after the mark was set.
func (e *Engine) clearAdopted(a *anchor) {
	for id, t := range a.tracked {
		if t.adopted && e.table.vouched(id, t.uid) {
			t.adopted = false
			a.tracked[id] = t
		}
	}
}

// refused tells the errors after which nothing can have been written.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError
}

// answer is what clients of the API do not return of the answer to a request.
type answer struct {
	code     int
	warnings []string
}

type answerKey struct{}

// withAnswer returns a context that keeps it.
func withAnswer(ctx context.Context) (context.Context, *answer) {
	a := &answer{}
	return context.WithValue(ctx, answerKey{}, a), a
}

// answers tells of them to those who asked withAnswer.
type answers struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if a, ok := r.Context().Value(answerKey{}).(*answer); ok && err == nil {
		a.code, a.warnings = resp.StatusCode, nil
		headers, _ := utilnet.ParseWarningHeaders(resp.Header["Warning"])
		for _, h := range headers {
			a.warnings = append(a.warnings, h.Text)
		}
	}
	return resp, err
}

// WrappedRoundTripper lets idle connections be closed.
func (c answers) WrappedRoundTripper() http.RoundTripper { return c.next }
