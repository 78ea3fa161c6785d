// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// AnnotationHubNamespace names, on a namespace that was made for pods, the hub's
	// namespace whose pods were in it last: "<hub id>/<name>/<UID>".
	AnnotationHubNamespace = "spokelet.io/hub-namespace"
	// AnnotationKeptBecause says, on a namespace that the hub has no more, why it is
	// still there. Who takes it away has the agent look again.
	AnnotationKeptBecause = "spokelet.io/kept-because"
)

// origin is a namespace of a hub.
type origin struct {
	hub, namespace string
	uid            types.UID
}

// String is the value of AnnotationHubNamespace, empty for an origin that is not known.
func (o origin) String() string {
	if o.uid == "" {
		return ""
	}
	return o.hub + "/" + o.namespace + "/" + string(o.uid)
}

// parseOrigin is the inverse of String; what nobody of us wrote is not known.
func parseOrigin(text string) origin {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return origin{}
	}
	return origin{hub: parts[0], namespace: parts[1], uid: types.UID(parts[2])}
}

// originOf is where the pods of a namespace of the spoke are from.
func (e *Engine) originOf(namespace string, uid types.UID) origin {
	name, _ := e.hubNamespace(namespace)
	return origin{hub: e.cfg.HubID, namespace: name, uid: uid}
}

// namespaceAction is what is to be done about a namespace that was made for pods.
type namespaceAction string

const (
	leaveNamespace namespaceAction = "leave"
	// claimNamespace: write down of which namespace of the hub it is.
	claimNamespace namespaceAction = "claim"
	// collectNamespace: delete it if nothing is in it.
	collectNamespace namespaceAction = "collect"
)

// namespaceInput is what is known of one namespace at one moment.
type namespaceInput struct {
	// exists: it is there, and bears our label. deleting: it goes already.
	exists, deleting bool
	// listed: pods and what the hub wants are known.
	listed bool
	// isUsed: it has pods of the hub, or is to have some, of the namespace from.
	isUsed bool
	from   origin
	// origin is the origin that it bears; gone: it is ours, and the hub has it no more.
	origin    origin
	goneOnHub bool
	// isKept: it bears why it is still there.
	isKept bool
}

func decideNamespace(s namespaceInput) namespaceAction {
	switch {
	case !s.exists, s.deleting:
		return leaveNamespace
	case s.isUsed && s.canClaim() && (s.from != s.origin || s.isKept):
		return claimNamespace
	case s.isUsed:
		return leaveNamespace
	case s.goneOnHub && s.listed:
		return collectNamespace
	default:
		return leaveNamespace
	}
}

// canClaim reports whether the namespace is nobody's or this hub's. The agents of two hubs
// that use one namespace would else overwrite each other's annotation for ever.
func (s namespaceInput) canClaim() bool {
	return s.from.uid != "" && (s.origin.hub == "" || s.origin.hub == s.from.hub)
}
