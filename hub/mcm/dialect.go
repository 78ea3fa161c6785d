// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/requester"
)

// objectKey names an object of one of the APIs.
type objectKey = wire.ActionKey

// dialectClusterView names ManagedClusterView. It has no actions, so that no key in Sync
// begins with it.
const dialectClusterView = "clusterview"

// request is what an object asks for: one of view, action and failure.
type request struct {
	cluster string
	view    *wire.View
	action  *wire.Action
	failure *failure
}

// failure is why nothing is asked.
type failure struct {
	// reason is one of a condition, where the API has some.
	reason  string
	message string
}

// options are the settings of the hub for all results.
type options struct {
	maxBytes    int
	showSecrets bool
}

// outcome is what is known of an object: one of result, done, failed and waiting.
type outcome struct {
	// generation of the object that it is about, if the cluster said it; 0 otherwise.
	generation int64
	view       *wire.ViewResult
	action     *wire.ActionResult
	failure    *failure
	// waiting says what for, where the cluster has not said anything yet.
	waiting string
}

// result is the object, list or table that came back; nil if there is none.
func (o outcome) result() []byte {
	switch {
	case o.view != nil:
		return o.view.Result
	case o.action != nil:
		return o.action.Result
	default:
		return nil
	}
}

// refusal is the cluster's; nil if there is none.
func (o outcome) refusal() *wire.Refusal {
	switch {
	case o.view != nil:
		return o.view.Refusal
	case o.action != nil:
		return o.action.Refusal
	default:
		return nil
	}
}

// isFailure reports whether there is no result, or not yet.
func (o outcome) isFailure() bool { return o.failure != nil || o.refusal() != nil || o.waiting != "" }

// withoutResult replaces a result that cannot be stored.
func (o outcome) withoutResult() outcome {
	if o.action != nil {
		action := *o.action
		action.Result, action.Omitted = nil, len(action.Result) > 0 || action.Omitted
		o.action = &action
		return o
	}
	o.view = &wire.ViewResult{Refusal: wire.Refuse(wire.CauseLimit, "", "the hub cannot store the result")}
	return o
}

// state is a status without its result and its times.
type state struct {
	kind, reason string
	observed     int64
	// digest of the result; empty for none.
	digest string
}

// dialect has what differs between the APIs.
type dialect struct {
	name string
	// resource is what an author has to be allowed to create.
	resource       metav1.GroupResource
	annotationKeys requester.AnnotationKeys
	newObject      func() client.Object
	// parse is what an object asks for.
	parse func(obj client.Object, o options) request
	// storedState is that of an object as it is stored.
	storedState func(obj client.Object) state
	// nextState is the state that an outcome makes of one. It need not set the digest.
	nextState func(obj client.Object, last state, o outcome) state
	// newStatus is what is written for a state. Result is nil where it stays as it is.
	newStatus func(obj client.Object, last, next state, result []byte, now time.Time) any
	// keepsResult: a failure leaves the result of before.
	keepsResult bool
	// sharesKind: objects for clusters of other controllers are theirs.
	sharesKind bool
	// remainingLife is how long an object stays after it is done; 0 for ever.
	remainingLife func(obj client.Object, now time.Time) (left time.Duration, ends bool)
}

func dialects() []*dialect { return []*dialect{mcmWorks(), clusterViews(), clusterActions()} }

// isAnswered reports whether the cluster has answered the current generation.
func (d *dialect) isAnswered(obj client.Object, s state) bool {
	return s.observed != 0 && s.observed == obj.GetGeneration()
}
