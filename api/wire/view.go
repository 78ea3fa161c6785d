// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// KindView is the Sync kind of [View], hub to agent. Its key is [View.Key]; its
	// generation is larger each time that the hub wants the answer sent again, across
	// restarts of the hub too.
	KindView = "view"
	// KindViewResult is the Sync kind of [ViewResult], agent to hub; a result has the key
	// and the generation of its view.
	KindViewResult = "view.result"

	// MaxViewBytes bounds the result that a view may ask for, in bytes of JSON: what
	// still fits into an object of etcd.
	MaxViewBytes = 1 << 20

	// maxSelector, maxGroups and maxName bound the parts of a view and of an action.
	maxSelector = 16 << 10
	maxGroups   = 1000
	maxName     = 1024
	maxURL      = 4 << 10
	// maxReason bounds the message of a refusal.
	maxReason = 4 << 10
	// noReason stands for the message of a refusal that has neither message nor reason.
	noReason = "refused without a reason"
)

// ErrInvalidView: a view, an action or a result is not one that a peer may send.
var ErrInvalidView = errors.New("invalid view or action")

// Requester is the user of the hub for whom a view or an action is made. The agent
// impersonates it, by its own mapping.
type Requester struct {
	User   string   `json:"user"`
	Groups []string `json:"groups,omitempty"`
}

func (r Requester) validate() error {
	if r.User == "" || len(r.User) > maxName {
		return fmt.Errorf("user of %d bytes: %w", len(r.User), ErrInvalidView)
	}
	if len(r.Groups) > maxGroups {
		return fmt.Errorf("%d groups, limit is %d: %w", len(r.Groups), maxGroups, ErrInvalidView)
	}
	for _, g := range r.Groups {
		if g == "" || len(g) > maxName {
			return fmt.Errorf("group of %d bytes: %w", len(g), ErrInvalidView)
		}
	}
	return nil
}

// Target names a resource of the spoke, and an object or objects of it.
type Target struct {
	// Resource is read as kubectl reads it: plural, singular, short name, Kind,
	// resource.group or resource.version.group. Empty where Kind is set.
	Resource string `json:"resource,omitempty"`
	// Group and Version narrow Resource, or qualify Kind; empty is any.
	Group   string `json:"group,omitempty"`
	Version string `json:"version,omitempty"`
	Kind    string `json:"kind,omitempty"`
	// Namespace is empty for all, and for what is in none.
	Namespace string `json:"namespace,omitempty"`
	// Name is empty for a list.
	Name string `json:"name,omitempty"`
}

func (t Target) validate() error {
	if t.Resource == "" && t.Kind == "" {
		return fmt.Errorf("neither resource nor kind: %w", ErrInvalidView)
	}
	return t.validateLength()
}

func (t Target) validateLength() error {
	for _, s := range []string{t.Resource, t.Group, t.Version, t.Kind, t.Namespace, t.Name} {
		if len(s) > maxName {
			return fmt.Errorf("name of %d bytes in a target: %w", len(s), ErrInvalidView)
		}
	}
	return nil
}

// View asks for objects of the spoke, now and each time that they change. Views that
// ask the same as the same user are one.
type View struct {
	Requester Requester `json:"requester"`
	Target    Target    `json:"target"`
	// LabelSelector and FieldSelector are of lists alone.
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	// Releases asks for releases of Helm: a ResultHelmList of mcm.ibm.com, also where
	// they have a name. Target has only their namespace and name then, LabelSelector
	// selects the Secrets that record them, and the requester has to have the right to
	// read those.
	Releases bool `json:"releases,omitempty"`
	// Table asks for what kubectl prints, as a meta.k8s.io/v1 Table.
	Table bool `json:"table,omitempty"`
	// Secrets says what becomes of them.
	Secrets SecretPolicy `json:"secrets,omitempty"`
	// MaxBytes bounds the JSON of the result: 1 to MaxViewBytes. Lists are cut at whole
	// items, a single object that is larger is refused.
	MaxBytes int `json:"maxBytes"`
}

// SecretPolicy says what becomes of the values of Secrets.
type SecretPolicy string

const (
	// SecretsMasked leaves keys and hides values. It is the zero value.
	SecretsMasked SecretPolicy = ""
	// SecretsShown leaves Secrets as they are.
	SecretsShown SecretPolicy = "Shown"
	// SecretsRefused refuses a view of Secrets.
	SecretsRefused SecretPolicy = "Refused"
)

func (p SecretPolicy) validate() error {
	switch p {
	case SecretsMasked, SecretsShown, SecretsRefused:
		return nil
	default:
		return fmt.Errorf("secret policy %.32q: %w", p, ErrInvalidView)
	}
}

// Key is that of the view in Sync: the SHA-256 of its JSON, in hexadecimal digits.
func (v View) Key() (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode view: %w", err)
	}
	return digest(raw), nil
}

// DecodeView reads the body of a [KindView].
func DecodeView(body []byte) (View, error) {
	var v View
	if err := json.Unmarshal(body, &v); err != nil {
		return View{}, fmt.Errorf("decode view: %w: %w", ErrInvalidView, err)
	}
	if err := v.validate(); err != nil {
		return View{}, err
	}
	return v, nil
}

func (v View) validate() error {
	if err := v.Requester.validate(); err != nil {
		return err
	}
	if err := v.validateTarget(); err != nil {
		return err
	}
	if err := v.Secrets.validate(); err != nil {
		return err
	}
	if v.MaxBytes < 1 || v.MaxBytes > MaxViewBytes {
		return fmt.Errorf("result of %d bytes, limit is %d: %w", v.MaxBytes, MaxViewBytes, ErrInvalidView)
	}
	if len(v.LabelSelector) > maxSelector || len(v.FieldSelector) > maxSelector {
		return fmt.Errorf("selector of %d bytes, limit is %d: %w", max(len(v.LabelSelector), len(v.FieldSelector)), maxSelector, ErrInvalidView)
	}
	if _, err := labels.Parse(v.LabelSelector); err != nil {
		return fmt.Errorf("label selector: %w: %w", ErrInvalidView, err)
	}
	if _, err := fields.ParseSelector(v.FieldSelector); err != nil {
		return fmt.Errorf("field selector: %w: %w", ErrInvalidView, err)
	}
	return nil
}

func (v View) validateTarget() error {
	if !v.Releases {
		return v.Target.validate()
	}
	if v.Target != (Target{Namespace: v.Target.Namespace, Name: v.Target.Name}) || v.Table || v.FieldSelector != "" {
		return fmt.Errorf("view of releases with a resource, a field selector or a table: %w", ErrInvalidView)
	}
	if problems := validation.IsValidLabelValue(v.Target.Name); len(problems) > 0 {
		return fmt.Errorf("view of releases named %.64q, which is the value of no label: %w", v.Target.Name, ErrInvalidView)
	}
	return v.Target.validateLength()
}

// Refusal says why there is no result.
type Refusal struct {
	// Cause is what kind of reason it is.
	Cause Cause `json:"cause"`
	// Status is the reason of the API server, where it is one's; see
	// metav1.StatusReason.
	Status metav1.StatusReason `json:"status,omitempty"`
	// Message names the subject; the same cause has the same message.
	Message string `json:"message"`
}

// Cause tells refusals apart.
type Cause string

const (
	// CauseTarget: the spoke has no such resource, or it is ambiguous.
	CauseTarget Cause = "Target"
	// CauseRequest: the API server of the spoke, or the kube door, refused.
	CauseRequest Cause = "Request"
	// CauseLimit: a bound of the agent, or of the result.
	CauseLimit Cause = "Limit"
	// CauseUnknown: an action was interrupted, and nothing tells whether it was done.
	CauseUnknown Cause = "Unknown"
)

func (r *Refusal) validate() error {
	if r == nil {
		return nil
	}
	switch r.Cause {
	case CauseTarget, CauseRequest, CauseLimit, CauseUnknown:
	default:
		return fmt.Errorf("cause %.32q: %w", r.Cause, ErrInvalidView)
	}
	if r.Message == "" || len(r.Message) > maxReason || len(r.Status) > maxName {
		return fmt.Errorf("refusal with a message of %d bytes, limit is %d: %w", len(r.Message), maxReason, ErrInvalidView)
	}
	return nil
}

// Refuse makes a refusal that [DecodeViewResult] takes, whatever an API server said: one
// without a message, or with a reason that is no reason, would never reach its reader.
func Refuse(cause Cause, status metav1.StatusReason, message string) *Refusal {
	if len(message) > maxReason {
		message = message[:maxReason-len("...")] + "..."
	}
	if len(status) > maxName {
		status = metav1.StatusReasonUnknown
	}
	return &Refusal{Cause: cause, Status: status, Message: cmp.Or(clipUTF8(message), string(status), noReason)}
}

// ViewResult is what a view shows: one of Result and Refusal.
type ViewResult struct {
	// Result is an object, a List or a Table, as JSON of at most MaxBytes.
	Result json.RawMessage `json:"result,omitempty"`
	// Cut is how many items of a list did not fit.
	Cut int `json:"cut,omitempty"`
	// ClusterScoped: the objects are in no namespace.
	ClusterScoped bool     `json:"clusterScoped,omitempty"`
	Refusal       *Refusal `json:"refusal,omitempty"`
}

// DecodeViewResult reads the body of a [KindViewResult].
func DecodeViewResult(body []byte) (ViewResult, error) {
	var r ViewResult
	if err := json.Unmarshal(body, &r); err != nil {
		return ViewResult{}, fmt.Errorf("decode result of a view: %w: %w", ErrInvalidView, err)
	}
	if err := r.Refusal.validate(); err != nil {
		return ViewResult{}, err
	}
	if (r.Refusal == nil) == (len(r.Result) == 0) {
		return ViewResult{}, fmt.Errorf("result of a view with both or neither of result and refusal: %w", ErrInvalidView)
	}
	if r.Cut < 0 {
		return ViewResult{}, fmt.Errorf("%d items are cut: %w", r.Cut, ErrInvalidView)
	}
	return r, validateResult(r.Result)
}

// validateResult accepts an object of JSON: nothing else can stand in a status.
func validateResult(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	if len(raw) > MaxViewBytes || raw[0] != '{' {
		return fmt.Errorf("result of %d bytes is no object or exceeds %d: %w", len(raw), MaxViewBytes, ErrInvalidView)
	}
	return nil
}
