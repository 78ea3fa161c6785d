// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"slices"
	"strings"
	"time"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/deployer"
	"github.com/spokelet/spokelet/workers/version"
)

// The shapes of Cloudflare's API, as far as wrangler reads them.

type accountJSON struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type versionJSON struct {
	ID          string            `json:"id"`
	Metadata    metadataJSON      `json:"metadata"`
	Annotations map[string]string `json:"annotations"`
	Resources   resourcesJSON     `json:"resources"`
}

type metadataJSON struct {
	CreatedOn   string `json:"created_on"`
	ModifiedOn  string `json:"modified_on"`
	AuthorEmail string `json:"author_email"`
	AuthorID    string `json:"author_id"`
	Source      string `json:"source"`
	HasPreview  bool   `json:"has_preview"`
}

type resourcesJSON struct {
	Bindings []bindingJSON `json:"bindings"`
	Script   scriptJSON    `json:"script"`
	Runtime  runtimeJSON   `json:"script_runtime"`
}

type scriptJSON struct {
	ETag     string   `json:"etag"`
	Handlers []string `json:"handlers"`
}

type runtimeJSON struct {
	CompatibilityDate  string   `json:"compatibility_date"`
	CompatibilityFlags []string `json:"compatibility_flags"`
	UsageModel         string   `json:"usage_model"`
}

type bindingJSON struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	JSON any    `json:"json,omitempty"`
	Part string `json:"part,omitempty"`
}

type deploymentJSON struct {
	ID          string             `json:"id"`
	CreatedOn   string             `json:"created_on"`
	Source      string             `json:"source"`
	Strategy    string             `json:"strategy"`
	AuthorEmail string             `json:"author_email"`
	Annotations map[string]string  `json:"annotations"`
	Versions    []versionShareJSON `json:"versions"`
}

type versionShareJSON struct {
	VersionID  string  `json:"version_id"`
	Percentage float64 `json:"percentage"`
}

const (
	annotationMessage = "workers/message"
	annotationTag     = "workers/tag"
	// timeLayout sorts as text, which is how wrangler sorts it.
	timeLayout = "2006-01-02T15:04:05.000000Z"
)

func formatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// kubectlAuthor is the author of what was written with kubectl.
const kubectlAuthor = "kubectl"

func authorName(name string) string {
	if name == "" {
		return kubectlAuthor
	}
	return name
}

func deploymentSource(author string) string {
	if author == "" {
		return "api"
	}
	return "wrangler"
}

func newVersionJSON(v version.Version) versionJSON {
	annotations := map[string]string{}
	if v.Message != "" {
		annotations[annotationMessage] = v.Message
	}
	if v.Tag != "" {
		annotations[annotationTag] = v.Tag
	}
	created := formatTime(v.CreatedOn)
	return versionJSON{
		ID: v.ID, Annotations: annotations,
		Metadata: metadataJSON{CreatedOn: created, ModifiedOn: created, AuthorEmail: authorName(v.Author), AuthorID: authorName(v.Author), Source: deploymentSource(v.Author)},
		Resources: resourcesJSON{
			Bindings: newBindings(v),
			Script:   scriptJSON{ETag: strings.Join(v.Script.ScriptURLs, ","), Handlers: []string{"fetch"}},
			Runtime: runtimeJSON{
				CompatibilityDate: v.Script.CompatibilityDate, CompatibilityFlags: append([]string{}, v.Script.CompatibilityFlags...), UsageModel: "standard",
			},
		},
	}
}

// newBindings are those of a version: of secrets the names alone.
func newBindings(v version.Version) []bindingJSON {
	all := []bindingJSON{}
	for _, b := range v.Script.Bindings {
		shape := bindingJSON{Name: b.Name, Type: b.Type, Text: b.Text, Part: b.Part}
		if b.JSON != nil {
			shape.JSON = b.JSON
		}
		all = append(all, shape)
	}
	return append(all, newSecretBindings(v.SecretNames)...)
}

func newSecretBindings(names []string) []bindingJSON {
	all := []bindingJSON{}
	for _, name := range slices.Sorted(slices.Values(names)) {
		all = append(all, bindingJSON{Name: name, Type: release.BindingSecretText})
	}
	return all
}

func newDeploymentJSON(d deployer.Deployment) deploymentJSON {
	annotations := map[string]string{}
	if d.Message != "" {
		annotations[annotationMessage] = d.Message
	}
	return deploymentJSON{
		ID: d.ID, CreatedOn: formatTime(d.CreatedOn), Source: deploymentSource(d.Author), Strategy: "percentage", AuthorEmail: authorName(d.Author),
		Annotations: annotations, Versions: []versionShareJSON{{VersionID: d.Version, Percentage: 100}},
	}
}
