// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/spokelet/spokelet/agent/work/inventory"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// objectOrigin is what tells who made an object: a work takes over what is there, and
// deletes nothing but what was made for a work.
type objectOrigin struct {
	// isCreated: this very apply made it.
	isCreated bool
	createdAt time.Time
	// isOnlyOurs: nobody but us has written it, its status aside.
	isOnlyOurs bool
}

// newObjectOrigin reads an object, or the answer with that status code to its apply.
func newObjectOrigin(obj metav1.Object, code int) objectOrigin {
	o := objectOrigin{isCreated: code == http.StatusCreated, createdAt: obj.GetCreationTimestamp().Time}
	for _, f := range obj.GetManagedFields() {
		if f.Subresource != "" {
			continue
		}
		// References alone are written by an update.
		if o.isOnlyOurs = f.Manager == inventory.FieldManager; !o.isOnlyOurs {
			return o
		}
	}
	return o
}

// isCreatedByUs tells whether we made the object of that UID. Where the answer to an apply
// was lost, by a crash or on the way, it is ours only if it cannot have been there
// before: it is no older than the anchor, and nobody else has a field of it. Anchors of
// a policy that does not keep what was found do not say what was: there the same is asked
// of every object.
func (e *Engine) isCreatedByUs(p Policy, t trackedObject, uid types.UID, o objectOrigin, a *anchor) bool {
	switch {
	case o.isCreated || e.inventory.IsCreated(t.ObjectID, uid):
		return true
	case t.uid == uid && p.KeepsExisting:
		return !t.isAdopted
	default:
		return (t.isUncertain || !p.KeepsExisting) && o.isOnlyOurs && !o.createdAt.Before(a.created)
	}
}

// updateTracked is a tracked object after an apply that was answered.
func (e *Engine) updateTracked(w *work, t trackedObject, uid types.UID, o objectOrigin) trackedObject {
	made := e.isCreatedByUs(w.policy, t, uid, o, w.anchor)
	if made {
		e.inventory.MarkCreated(t.ObjectID, uid)
	}
	t.isAdopted = w.policy.KeepsExisting && !made
	t.uid, t.isUncertain, t.detachedUID = uid, false, ""
	return t
}

// clearAdopted clears the adopted mark of objects that this agent made for another work,
// which may be known only after the mark was set.
func (e *Engine) clearAdopted(a *anchor) {
	for id, t := range a.tracked {
		if t.isAdopted && e.inventory.IsCreated(id, t.uid) {
			t.isAdopted = false
			a.tracked[id] = t
		}
	}
}

// isRejected tells the errors after which nothing can have been written.
func isRejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError
}

// response is what clients of the API do not return of the answer to a request.
type response struct {
	code     int
	warnings []string
}

type responseKey struct{}

// withResponse returns a context that keeps it.
func withResponse(ctx context.Context) (context.Context, *response) {
	a := &response{}
	return context.WithValue(ctx, responseKey{}, a), a
}

// responseRecorder tells of them to those who asked withResponse.
type responseRecorder struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c responseRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if a, ok := r.Context().Value(responseKey{}).(*response); ok && err == nil {
		a.code, a.warnings = resp.StatusCode, nil
		headers, _ := utilnet.ParseWarningHeaders(resp.Header["Warning"])
		for _, h := range headers {
			a.warnings = append(a.warnings, h.Text)
		}
	}
	return resp, err
}

// WrappedRoundTripper lets idle connections be closed.
func (c responseRecorder) WrappedRoundTripper() http.RoundTripper { return c.next }
