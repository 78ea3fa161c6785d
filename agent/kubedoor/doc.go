// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubedoor is the agent's door to the API server of its cluster: a
// reverse proxy that impersonates the principal whom the hub states.
//
// A request is forwarded only when it passes all of these checks: the
// door is enabled, the path is canonical (internal/httpproxy), exactly one principal is
// stated (internal/impersonation), it maps to an identity, and the path lies within the
// namespaces that the cluster's owner allows. Any doubt is a refusal in the
// form of a metav1.Status, never a forwarded request.
//
// The hub's virtual kubelet is another principal: it is served the logs and
// streams of pods that run here for the hub, each named with its UID, and
// nothing else. The pod's namespace on the hub is replaced by the one here, and
// the request is made as the account that the owner gave to pods.
//
// Clients inside the agent that act for a user of the hub come the same way, by
// the transport of [Door.Config].
//
// What the principal may do is then for the API server to say: the door adds no
// rights.
package kubedoor
