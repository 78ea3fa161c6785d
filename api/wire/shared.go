// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// KindShare is the Sync kind of [Share], hub to agent. Its key is the name of the
	// SharedResource, its UID and generation are that object's.
	KindShare = "shared"
	// KindSharedObject is the Sync kind of [SharedObject], hub to agent. Its key is a
	// [SharedKey], its UID that of the object on the hub, its generation the number that
	// is the object's resourceVersion.
	KindSharedObject = "shared.object"
	// KindSharedWrite is the Sync kind of [SharedWrite], agent to hub, with the key of its
	// object. Its generation is larger each time, across restarts of the agent too. It is
	// published until the hub has answered it in the [SharedObject].
	KindSharedWrite = "shared.write"
	// KindShareState is the Sync kind of [ShareState], agent to hub, with the key of its
	// [Share].
	KindShareState = "shared.state"

	// MaxSharedContent bounds the content of a shared object, in bytes of JSON.
	MaxSharedContent = 1 << 20
	// MaxDecided bounds the decisions in a state.
	MaxDecided = 16

	// maxFields and maxField bound the fields in a decision, and the bytes of each: with
	// MaxDecided of them a state fits in a body, however JSON escapes them.
	maxFields = 16
	maxField  = 256
	// fencePrefix begins the name in the key of a fence; no object's name begins so.
	fencePrefix = "#"
)

// ErrInvalidShared is wrapped by the errors of invalid messages about shared objects.
var ErrInvalidShared = errors.New("invalid shared object")

// SharedSide is one of the two sides of a shared object.
type SharedSide string

// The sides.
const (
	SharedHub   SharedSide = "Hub"
	SharedSpoke SharedSide = "Spoke"
)

// Share is a SharedResource for one cluster.
type Share struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
	// HubNamespace and SpokeNamespace are the namespaces of the objects.
	HubNamespace   string `json:"hubNamespace"`
	SpokeNamespace string `json:"spokeNamespace"`
	// ToSpoke and ToHub say which side's changes are applied to the other: at least one's.
	ToSpoke bool `json:"toSpoke,omitempty"`
	ToHub   bool `json:"toHub,omitempty"`
	// Selector is a label selector; empty is all.
	Selector string `json:"selector,omitempty"`
	// Winner is the side whose change stays in a conflict.
	Winner SharedSide `json:"winner"`
	// AdoptAny shares objects that exist on both sides and differ.
	AdoptAny bool `json:"adoptAny,omitempty"`
	// StatusSubresource: the status is a subresource in Version of the hub's definition.
	StatusSubresource bool `json:"statusSubresource,omitempty"`
	// Definition is the CustomResourceDefinition to create if there is none.
	Definition json.RawMessage `json:"definition,omitempty"`
	// HubUID is the UID of the hub's kube-system namespace.
	HubUID string `json:"hubUID"`
	// Fence names the [Fence] after which every object that is not published is absent. It is
	// another one each time the hub has listed its objects.
	Fence string `json:"fence,omitempty"`
	// Confirmed are the tokens of [Hold]s whose deletions are confirmed.
	Confirmed []string `json:"confirmed,omitempty"`
	// Quota bounds the objects of each side: beyond it none is created and none made larger.
	Quota SharedSize `json:"quota"`
	// Problem is why the hub shares nothing for now: then the spoke is not written, and absence
	// means nothing.
	Problem *ShareProblem `json:"problem,omitempty"`
}

// ShareProblem is why one side cannot share: a reason of a condition, and its message.
type ShareProblem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// SharedKey identifies an object of a share in Sync: "<share>/<name>".
type SharedKey struct{ Share, Name string }

// String is the key in Sync: "<share>/<name>".
func (k SharedKey) String() string { return k.Share + "/" + k.Name }

// FenceKey returns the key of a fence.
func FenceKey(share, fence string) SharedKey {
	return SharedKey{Share: share, Name: fencePrefix + fence}
}

// Fence returns the name of the fence of a key; false if it is the key of an object.
func (k SharedKey) Fence() (string, bool) { return strings.CutPrefix(k.Name, fencePrefix) }

// ParseSharedKey parses the key of an object, or of a fence.
func ParseSharedKey(key string) (SharedKey, error) {
	share, name, ok := strings.Cut(key, "/")
	k := SharedKey{Share: share, Name: name}
	if !ok || len(validation.IsDNS1123Subdomain(share)) > 0 {
		return SharedKey{}, fmt.Errorf("key %.128q: %w", key, ErrInvalidShared)
	}
	if fence, ok := k.Fence(); ok {
		if fence == "" || len(fence) > maxName {
			return SharedKey{}, fmt.Errorf("key %.128q: %w", key, ErrInvalidShared)
		}
		return k, nil
	}
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return SharedKey{}, fmt.Errorf("key %.128q: %w", key, ErrInvalidShared)
	}
	return k, nil
}

// SharedObject is an object on the hub. The one with the key of a fence is a [Fence].
type SharedObject struct {
	// Version is the hash of the content, which a write is based on. Empty if the object is
	// absent.
	Version string `json:"version,omitempty"`
	// Content is a content of package sharedobject; nil if the object is absent.
	Content json.RawMessage `json:"content,omitempty"`
	// Deleting: the object is being deleted, and waits for its finalizers.
	Deleting bool `json:"deleting,omitempty"`
	// Deleted: the hub has observed the deletion. An object that is merely not published is
	// absent, which proves no deletion.
	Deleted bool `json:"deleted,omitempty"`
	// Unselected: the selector does not select the object, or no longer.
	Unselected bool `json:"unselected,omitempty"`
	// Applied is the generation of the latest write of this cluster that was done, and Refused
	// that of the latest that was refused, for Reason; 0 for none. Result is the content after
	// Applied, where that is not as requested.
	Applied int64           `json:"applied,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Refused int64           `json:"refused,omitempty"`
	Reason  string          `json:"reason,omitempty"`
}

// Fence follows all objects of a list of the hub. Its key is a [FenceKey].
type Fence struct {
	// Version is the number of the list's resourceVersion.
	Version int64 `json:"version"`
}

// SharedPart is the part of an object that one request writes.
type SharedPart string

const (
	// PartObject is all but the status, and the status too where it is no subresource.
	PartObject SharedPart = "Object"
	// PartStatus is the status subresource.
	PartStatus SharedPart = "Status"
	// PartDeletion deletes the object.
	PartDeletion SharedPart = "Deletion"
)

// SharedWrite requests one write of one object on the hub.
type SharedWrite struct {
	Part SharedPart `json:"part"`
	// Seen is the Version of the object that the write is based on; empty to create it. The UID
	// of the resource is that of the object. A hub that has another version publishes that and
	// does nothing.
	Seen string `json:"seen,omitempty"`
	// Content is the whole content that the object is to have; nil for a deletion. Only Part of
	// it is written.
	Content json.RawMessage `json:"content,omitempty"`
}

// ShareState is a spoke's report of a share.
type ShareState struct {
	// Generation is the SharedResource's.
	Generation int64 `json:"generation"`
	// Objects is how many objects both sides have, Conflicts how many of them differ and are
	// not shared.
	Objects   int `json:"objects"`
	Conflicts int `json:"conflicts,omitempty"`
	// LastError is why an object is not in sync.
	LastError string `json:"lastError,omitempty"`
	// Problem is why the spoke shares nothing; nil if it does.
	Problem *ShareProblem `json:"problem,omitempty"`
	// Hold is set while deletions wait to be confirmed.
	Hold *Hold `json:"hold,omitempty"`
	// QuotaReached names the objects that wait for quota; nil for none.
	QuotaReached *ShareProblem `json:"quotaReached,omitempty"`
	// Decided are the latest decided conflicts, oldest first.
	Decided []Decided `json:"decided,omitempty"`
}

// Hold is a set of unproven deletions.
type Hold struct {
	Reason string `json:"reason"`
	// Token confirms these deletions, and no later ones.
	Token   string `json:"token"`
	Message string `json:"message"`
}

// Decided is a conflict that the winner has decided.
type Decided struct {
	// Number increases with each decision, across restarts of the agent too.
	Number int64      `json:"number"`
	Name   string     `json:"name"`
	Fields []string   `json:"fields"`
	Winner SharedSide `json:"winner"`
}

// DecodeShare reads the body of a [KindShare].
func DecodeShare(body []byte) (Share, error) {
	var s Share
	if err := decodeShared(body, &s); err != nil {
		return Share{}, err
	}
	for _, name := range []string{s.Group, s.Version, s.Resource, s.Kind, s.HubNamespace, s.SpokeNamespace} {
		if (name == "" && s.Problem == nil) || len(name) > maxName {
			return Share{}, fmt.Errorf("share with a name of %d bytes: %w", len(name), ErrInvalidShared)
		}
	}
	if !s.ToHub && !s.ToSpoke {
		return Share{}, fmt.Errorf("share without direction: %w", ErrInvalidShared)
	}
	if s.Winner != SharedHub && s.Winner != SharedSpoke {
		return Share{}, fmt.Errorf("winner %.32q: %w", s.Winner, ErrInvalidShared)
	}
	if len(s.Fence) > maxName {
		return Share{}, fmt.Errorf("fence of %d bytes: %w", len(s.Fence), ErrInvalidShared)
	}
	if len(s.Selector) > maxSelector {
		return Share{}, fmt.Errorf("selector of %d bytes, limit is %d: %w", len(s.Selector), maxSelector, ErrInvalidShared)
	}
	if _, err := labels.Parse(s.Selector); err != nil {
		return Share{}, fmt.Errorf("selector: %w: %w", ErrInvalidShared, err)
	}
	if s.Quota.Objects < 1 || s.Quota.Bytes < 1 {
		return Share{}, fmt.Errorf("quota of %d objects and %d bytes: %w", s.Quota.Objects, s.Quota.Bytes, ErrInvalidShared)
	}
	if err := s.Problem.validate(); err != nil {
		return Share{}, err
	}
	return s, nil
}

// DecodeSharedObject reads the body of a [KindSharedObject] that is no fence.
func DecodeSharedObject(body []byte) (SharedObject, error) {
	var o SharedObject
	if err := decodeShared(body, &o); err != nil {
		return SharedObject{}, err
	}
	if (o.Version == "") != (len(o.Content) == 0) {
		return SharedObject{}, fmt.Errorf("one of version and content is missing: %w", ErrInvalidShared)
	}
	if o.Deleted && o.Version != "" {
		return SharedObject{}, fmt.Errorf("deleted object with content: %w", ErrInvalidShared)
	}
	for _, raw := range []json.RawMessage{o.Result, o.Content} {
		if err := validateContent(raw); err != nil {
			return SharedObject{}, err
		}
	}
	return o, nil
}

// DecodeFence reads the body of a [KindSharedObject] that is a fence.
func DecodeFence(body []byte) (Fence, error) {
	var f Fence
	if err := decodeShared(body, &f); err != nil {
		return Fence{}, err
	}
	return f, nil
}

// DecodeSharedWrite reads the body of a [KindSharedWrite].
func DecodeSharedWrite(body []byte) (SharedWrite, error) {
	var w SharedWrite
	if err := decodeShared(body, &w); err != nil {
		return SharedWrite{}, err
	}
	switch w.Part {
	case PartObject, PartStatus:
		if len(w.Content) == 0 {
			return SharedWrite{}, fmt.Errorf("write without content: %w", ErrInvalidShared)
		}
	case PartDeletion:
		if len(w.Content) > 0 {
			return SharedWrite{}, fmt.Errorf("deletion with content: %w", ErrInvalidShared)
		}
	default:
		return SharedWrite{}, fmt.Errorf("part %.32q: %w", w.Part, ErrInvalidShared)
	}
	if w.Seen == "" && w.Part != PartObject {
		return SharedWrite{}, fmt.Errorf("%s of an object that is absent: %w", w.Part, ErrInvalidShared)
	}
	if len(w.Seen) > maxName {
		return SharedWrite{}, fmt.Errorf("version of %d bytes: %w", len(w.Seen), ErrInvalidShared)
	}
	if err := validateContent(w.Content); err != nil {
		return SharedWrite{}, err
	}
	return w, nil
}

// DecodeShareState reads the body of a [KindShareState].
func DecodeShareState(body []byte) (ShareState, error) {
	var s ShareState
	if err := decodeShared(body, &s); err != nil {
		return ShareState{}, err
	}
	if s.Generation < 0 || s.Objects < 0 || s.Conflicts < 0 || len(s.LastError) > maxReason || len(s.Decided) > MaxDecided {
		return ShareState{}, fmt.Errorf("state beyond its bounds: %w", ErrInvalidShared)
	}
	for _, d := range s.Decided {
		if err := d.validate(); err != nil {
			return ShareState{}, err
		}
	}
	if err := s.Hold.validate(); err != nil {
		return ShareState{}, err
	}
	if err := s.Problem.validate(); err != nil {
		return ShareState{}, err
	}
	if err := s.QuotaReached.validate(); err != nil {
		return ShareState{}, err
	}
	return s, nil
}

// validate accepts only words as tokens: users copy them into a command, and a list of them is
// separated by other characters.
func (h *Hold) validate() error {
	if h == nil {
		return nil
	}
	if h.Token == "" || len(validation.IsValidLabelValue(h.Token)) > 0 {
		return fmt.Errorf("token %.64q: %w", h.Token, ErrInvalidShared)
	}
	if h.Reason == "" || len(h.Reason) > maxName || len(h.Message) > maxReason {
		return fmt.Errorf("hold beyond its bounds: %w", ErrInvalidShared)
	}
	return nil
}

func (d Decided) validate() error {
	if len(validation.IsDNS1123Subdomain(d.Name)) > 0 || len(d.Fields) > maxFields {
		return fmt.Errorf("decision about %.128q, with %d fields: %w", d.Name, len(d.Fields), ErrInvalidShared)
	}
	for _, f := range d.Fields {
		if len(f) > maxField {
			return fmt.Errorf("field of %d bytes: %w", len(f), ErrInvalidShared)
		}
	}
	if d.Winner != SharedHub && d.Winner != SharedSpoke {
		return fmt.Errorf("winner %.32q: %w", d.Winner, ErrInvalidShared)
	}
	return nil
}

// NewDecided returns a decision that [DecodeShareState] accepts, however many fields it has.
func NewDecided(number int64, name string, fields []string, winner SharedSide) Decided {
	d := Decided{Number: number, Name: name, Winner: winner}
	for i, f := range fields {
		if i == maxFields-1 && len(fields) > maxFields {
			d.Fields = append(d.Fields, fmt.Sprintf("and %d more", len(fields)-i))
			break
		}
		d.Fields = append(d.Fields, clipUTF8(f[:min(len(f), maxField)]))
	}
	return d
}

// NewShareProblem returns a problem that peers accept, however long its message is.
func NewShareProblem(reason, message string) *ShareProblem {
	return &ShareProblem{Reason: reason, Message: ClipReason(message)}
}

// ClipReason truncates a text to the length that peers accept.
func ClipReason(text string) string { return clipUTF8(text[:min(len(text), maxReason)]) }

func (p *ShareProblem) validate() error {
	if p != nil && (p.Reason == "" || len(p.Reason) > maxName || len(p.Message) > maxReason) {
		return fmt.Errorf("problem beyond its bounds: %w", ErrInvalidShared)
	}
	return nil
}

func validateContent(raw json.RawMessage) error {
	if len(raw) > MaxSharedContent {
		return fmt.Errorf("content of %d bytes, limit is %d: %w", len(raw), MaxSharedContent, ErrInvalidShared)
	}
	if len(raw) > 0 && raw[0] != '{' {
		return fmt.Errorf("content is no object: %w", ErrInvalidShared)
	}
	return nil
}

func decodeShared(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode %T: %w: %w", into, ErrInvalidShared, err)
	}
	return nil
}
