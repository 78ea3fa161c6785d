// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// AnnotationHubNamespace names, on a namespace that was made for pods, the hub's of
	// which there were pods in it last: "<hub id>/<name>/<UID>".
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

// chore is the one thing to do about a namespace that was made for pods.
type chore string

const (
	choreNone chore = "none"
	// choreClaim: write down of which namespace of the hub it is.
	choreClaim chore = "claim"
	// choreClear: take back why it is still there.
	choreClear chore = "clear"
	// choreCollect: remove it if nothing is in it.
	choreCollect chore = "collect"
)

// tenancy is what is known of one namespace at one moment.
type tenancy struct {
	// made: it is there, and bears our label. deleting: it goes already.
	made, deleting bool
	// listed: pods and what the hub wants are known. told: so is what the hub has no more.
	listed, told bool
	// used: it has pods of the hub, or is to have some, of the namespace from.
	used bool
	from origin
	// written is the origin that it bears; gone: it is ours, and the hub has it no more.
	written origin
	gone    bool
	// kept: it bears why it is still there.
	kept bool
}

func decideNamespace(s tenancy) chore {
	switch {
	case !s.made, s.deleting:
		return choreNone
	case s.used && s.from.uid != "" && (s.from != s.written || s.kept):
		return choreClaim
	case s.used:
		return choreNone
	case s.gone && s.listed:
		return choreCollect
	case !s.gone && s.told && s.kept:
		return choreClear
	default:
		return choreNone
	}
}
