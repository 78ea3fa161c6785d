// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/record"
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
func (e *Engine) isCreatedByUs(p Policy, t record.Object, uid types.UID, o objectOrigin, a *record.Anchor) bool {
	switch {
	case o.isCreated || e.inventory.IsCreated(t.ObjectID, uid):
		return true
	case t.UID == uid && p.KeepsExisting:
		return !t.IsAdopted
	default:
		return (t.IsUncertain || !p.KeepsExisting) && o.isOnlyOurs && !o.createdAt.Before(a.Created)
	}
}

// updateTracked is a tracked object after an apply that was answered.
func (e *Engine) updateTracked(w *work, t record.Object, uid types.UID, o objectOrigin) record.Object {
	made := e.isCreatedByUs(w.policy, t, uid, o, w.anchor)
	if made {
		e.inventory.MarkCreated(t.ObjectID, uid)
	}
	t.IsAdopted = w.policy.KeepsExisting && !made
	t.UID, t.IsUncertain, t.DetachedUID = uid, false, ""
	return t
}

// clearAdopted clears the adopted mark of objects that this agent made for another work,
// which may be known only after the mark was set.
func (e *Engine) clearAdopted(a *record.Anchor) {
	for id, t := range a.Objects {
		if t.IsAdopted && e.inventory.IsCreated(id, t.UID) {
			t.IsAdopted = false
			a.Objects[id] = t
		}
	}
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
