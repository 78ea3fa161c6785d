// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the kubelet endpoint of the virtual nodes: one TLS port for
// each, which is how a request says what node it is for.
//
// A request is authenticated (a client certificate of the API server's client
// CA, or a TokenReview), then authorized for the node of its port by a
// SubjectAccessReview on the subresource that a kubelet would ask for, and only
// then routed. Any doubt on the way is a 401 or 403. The figures come through
// the session's door "node" while the request lasts; nothing is kept of them. They are
// parsed a part at a time, and what is not of the node, of its pods on the hub or of
// their containers is left out.
//
// Connections on which no request was authorized are few and short-lived, and the
// oldest gives way to a newcomer: whoever reaches the port cannot keep others
// from it by doing nothing.
//
// The doors are asked for paths of this package's own making: nothing of the
// client's request is forwarded but the parameters of a kubelet, in the API's
// form, and the headers by which the two ends of a stream agree.
//
// Logs, exec, attach and port-forward go through the door "kube" to the
// subresources of the pod in the cluster, as the principal Node. Streams are
// passed through as bytes, each on a raw stream of the session, WebSockets untouched. Clients
// of SPDY, and hubs before Kubernetes 1.36, take the end of a command's error stream for
// success, so package spdy adds a frame that reports a cut. Streams are counted by pod,
// namespace and cluster, so that none takes all streams of a session.
package kubelet
