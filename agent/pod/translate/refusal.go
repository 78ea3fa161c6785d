// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

// Reasons of a [*RefusedError], the first that applies in this order.
const (
	// ReasonStaticPod: the pod is a kubelet's own, or its mirror.
	ReasonStaticPod = "StaticPod"
	// ReasonHostAccess: the pod reaches for its node, and the spoke's owner does not
	// permit that.
	ReasonHostAccess = "HostAccess"
	// ReasonVolumeNotSupported: a volume is of a kind that does not travel.
	ReasonVolumeNotSupported = "VolumeNotSupported"
	// ReasonTokenNotSupported: the pod asks for a token, and there are none.
	ReasonTokenNotSupported = "TokenNotSupported"
	// ReasonTokenNotIssued: the pod asks for a token, which would be the hub's, and
	// the hub issues none for it. It heals when the hub says otherwise.
	ReasonTokenNotIssued = "TokenNotIssued"
	// ReasonNameReserved: the pod refers to an object by a name under which agents
	// keep what is another pod's.
	ReasonNameReserved = "NameReserved"
	// ReasonResourceClaimsNotSupported: the pod claims devices of the hub.
	ReasonResourceClaimsNotSupported = "ResourceClaimsNotSupported"
	// ReasonNodeGroupUnknown: the pod is of a group of nodes, and there are none.
	ReasonNodeGroupUnknown = "NodeGroupUnknown"
)

// RefusedError: a pod is not one that the spoke takes. It heals when the hub sends the
// pod otherwise.
type RefusedError struct {
	// Reason is a word as of a condition, Message one printable line that names what
	// offends.
	Reason, Message string
}

// Error is the message.
func (e *RefusedError) Error() string { return e.Message }
