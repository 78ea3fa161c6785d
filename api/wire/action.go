// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

const (
	// KindAction is the Sync kind of [Action], hub to agent. Its key is that of the
	// object on the hub (see [ActionKey]), its UID and generation are the object's: an
	// action is executed once for each UID and generation.
	KindAction = "action"
	// KindActionResult is the Sync kind of [ActionResult], agent to hub, with the key, the
	// UID and the generation of its action.
	KindActionResult = "action.result"

	// MaxActionTemplate bounds the template of an action, in bytes.
	MaxActionTemplate = 1 << 20
	// MaxReleaseTimeout bounds the time that an action of Helm may take, in seconds.
	MaxReleaseTimeout = 3600
	// maxWarnings bounds the warnings of a result.
	maxWarnings = 16
	// noProgress stands for a progress that has no text.
	noProgress = "it is being done"
)

// The APIs that actions are written in: the first parts of their keys.
const (
	// DialectMCMWork names the Work of mcm.ibm.com.
	DialectMCMWork = "mcm"
	// DialectClusterAction names the ManagedClusterAction of
	// action.open-cluster-management.io.
	DialectClusterAction = "clusteraction"
)

// ActionKey names an action in Sync: "<dialect>/<namespace>/<name>". The namespace is
// that of the object, which need not be that of the cluster.
type ActionKey = WorkKey

// Verb is what an action does.
type Verb string

// The verbs of actions.
const (
	VerbCreate Verb = "Create"
	VerbUpdate Verb = "Update"
	VerbDelete Verb = "Delete"
)

// Action is one thing to be done to one object of the spoke, or to one release of Helm.
type Action struct {
	Requester Requester `json:"requester"`
	Verb      Verb      `json:"verb"`
	// Target of a Delete. Of Create and Update its Namespace alone may be set: the one
	// that the object is to be in, in place of the template's.
	Target Target `json:"target"`
	// Template is a whole object of Create and Update, as JSON.
	Template json.RawMessage `json:"template,omitempty"`
	// Release is set, in place of Target and Template, for what Helm is to do: Create
	// installs, Update upgrades, Delete uninstalls.
	Release *Release `json:"release,omitempty"`
	// Secrets says whether the values of a Secret are in the result; SecretsRefused
	// counts as masked.
	Secrets SecretPolicy `json:"secrets,omitempty"`
	// MaxBytes bounds the JSON of the result: 1 to MaxViewBytes. A larger object is left
	// out.
	MaxBytes int `json:"maxBytes"`
}

// Release says which release of Helm an action is about, and what it is made of.
type Release struct {
	Name string `json:"name"`
	// Namespace is empty for "default" where a release is made, and for that of the only
	// release of the name where there has to be one.
	Namespace string `json:"namespace,omitempty"`
	// ChartURL is that of an archive, or of an artefact (oci://); of a repository where
	// there is a ChartName. Not of a Delete.
	ChartURL  string `json:"chartURL,omitempty"`
	ChartName string `json:"chartName,omitempty"`
	// Version is one, or a range where ChartURL leaves a choice.
	Version string `json:"version,omitempty"`
	// Values are YAML, and win over those that are at ValuesURL.
	Values    []byte `json:"values,omitempty"`
	ValuesURL string `json:"valuesURL,omitempty"`
	// InsecureSkipVerify does not check the certificates of the servers of these URLs.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
	// Wait has the release's objects ready before the action is done.
	Wait bool `json:"wait,omitempty"`
	// Timeout in seconds: 1 to MaxReleaseTimeout.
	Timeout int `json:"timeout"`
}

func (r *Release) validate() error {
	if r.Name == "" {
		return fmt.Errorf("release without a name: %w", ErrInvalidView)
	}
	for _, s := range []string{r.Name, r.Namespace, r.ChartName, r.Version} {
		if len(s) > maxName {
			return fmt.Errorf("name of %d bytes in a release: %w", len(s), ErrInvalidView)
		}
	}
	if len(r.ChartURL) > maxURL || len(r.ValuesURL) > maxURL {
		return fmt.Errorf("URL of %d bytes, limit is %d: %w", max(len(r.ChartURL), len(r.ValuesURL)), maxURL, ErrInvalidView)
	}
	if len(r.Values) > MaxActionTemplate {
		return fmt.Errorf("values of %d bytes, limit is %d: %w", len(r.Values), MaxActionTemplate, ErrInvalidView)
	}
	if r.Timeout < 1 || r.Timeout > MaxReleaseTimeout {
		return fmt.Errorf("timeout of %d s, limit is %d: %w", r.Timeout, MaxReleaseTimeout, ErrInvalidView)
	}
	return nil
}

// DecodeAction reads the body of a [KindAction].
func DecodeAction(body []byte) (Action, error) {
	var a Action
	if err := json.Unmarshal(body, &a); err != nil {
		return Action{}, fmt.Errorf("decode action: %w: %w", ErrInvalidView, err)
	}
	if err := a.validate(); err != nil {
		return Action{}, err
	}
	return a, nil
}

func (a Action) validate() error {
	if err := a.Requester.validate(); err != nil {
		return err
	}
	if err := a.Secrets.validate(); err != nil {
		return err
	}
	if a.MaxBytes < 1 || a.MaxBytes > MaxViewBytes {
		return fmt.Errorf("result of %d bytes, limit is %d: %w", a.MaxBytes, MaxViewBytes, ErrInvalidView)
	}
	if a.Release != nil {
		return a.validateRelease()
	}
	switch a.Verb {
	case VerbDelete:
		if len(a.Template) != 0 || a.Target.Name == "" {
			return fmt.Errorf("deletion with a template or without a name: %w", ErrInvalidView)
		}
		return a.Target.validate()
	case VerbCreate, VerbUpdate:
		if len(a.Template) == 0 || len(a.Template) > MaxActionTemplate || a.Template[0] != '{' {
			return fmt.Errorf("template of %d bytes is no object or exceeds %d: %w", len(a.Template), MaxActionTemplate, ErrInvalidView)
		}
		if a.Target != (Target{Namespace: a.Target.Namespace}) || len(a.Target.Namespace) > maxName {
			return fmt.Errorf("target of a template is more than a namespace: %w", ErrInvalidView)
		}
		return nil
	default:
		return fmt.Errorf("verb %.32q: %w", a.Verb, ErrInvalidView)
	}
}

func (a Action) validateRelease() error {
	if len(a.Template) != 0 || a.Target != (Target{}) {
		return fmt.Errorf("action of a release and of an object: %w", ErrInvalidView)
	}
	switch a.Verb {
	case VerbCreate, VerbUpdate, VerbDelete:
		return a.Release.validate()
	default:
		return fmt.Errorf("verb %.32q: %w", a.Verb, ErrInvalidView)
	}
}

// ActionResult is what became of an action: done, or refused. Before that it may be what
// is being done.
type ActionResult struct {
	// Progress says what is being done. Nothing else is set then, and another result
	// follows.
	Progress string `json:"progress,omitempty"`
	// Refusal is nil when the action was done.
	Refusal *Refusal `json:"refusal,omitempty"`
	// Result is the object as it is in the spoke, as JSON of at most MaxBytes; empty
	// after a deletion, and where it is left out. Of a release it is a HelmRelease of
	// mcm.ibm.com, also of one that was deleted.
	Result json.RawMessage `json:"result,omitempty"`
	// Omitted: the object is larger than MaxBytes, or the results of the cluster have no room.
	Omitted bool `json:"omitted,omitempty"`
	// Warnings are of the conversion of an old API version, and of the API server.
	Warnings []string `json:"warnings,omitempty"`
}

// DecodeActionResult reads the body of a [KindActionResult].
func DecodeActionResult(body []byte) (ActionResult, error) {
	var r ActionResult
	if err := json.Unmarshal(body, &r); err != nil {
		return ActionResult{}, fmt.Errorf("decode result of an action: %w: %w", ErrInvalidView, err)
	}
	if err := r.Refusal.validate(); err != nil {
		return ActionResult{}, err
	}
	if r.Progress != "" && (r.Refusal != nil || len(r.Result) > 0 || r.Omitted || len(r.Warnings) > 0 || len(r.Progress) > maxReason) {
		return ActionResult{}, fmt.Errorf("progress of %d bytes, limit is %d, or with a result: %w", len(r.Progress), maxReason, ErrInvalidView)
	}
	if r.Refusal != nil && len(r.Result) > 0 {
		return ActionResult{}, fmt.Errorf("result of an action that was refused: %w", ErrInvalidView)
	}
	if len(r.Warnings) > maxWarnings {
		return ActionResult{}, fmt.Errorf("%d warnings, limit is %d: %w", len(r.Warnings), maxWarnings, ErrInvalidView)
	}
	for _, w := range r.Warnings {
		if len(w) > maxReason {
			return ActionResult{}, fmt.Errorf("warning of %d bytes, limit is %d: %w", len(w), maxReason, ErrInvalidView)
		}
	}
	return r, validateResult(r.Result)
}

// Progressing is a result that says what is being done. It is never empty, as the result
// of an action that was done may be.
func Progressing(what string) ActionResult {
	if len(what) > maxReason {
		what = what[:maxReason-len("...")] + "..."
	}
	return ActionResult{Progress: cmp.Or(clipUTF8(what), noProgress)}
}

// AddWarning adds a warning as far as there is room.
func (r *ActionResult) AddWarning(text string) {
	if text == "" || len(r.Warnings) >= maxWarnings {
		return
	}
	if len(text) > maxReason {
		text = text[:maxReason-len("...")] + "..."
	}
	r.Warnings = append(r.Warnings, clipUTF8(text))
}

func digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// clipUTF8 drops what is no UTF-8, such as a rune that was cut.
func clipUTF8(s string) string { return strings.ToValidUTF8(s, "") }
