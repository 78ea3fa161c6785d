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

type accountShape struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type versionShape struct {
	ID          string            `json:"id"`
	Metadata    metadataShape     `json:"metadata"`
	Annotations map[string]string `json:"annotations"`
	Resources   resourcesShape    `json:"resources"`
}

type metadataShape struct {
	CreatedOn   string `json:"created_on"`
	ModifiedOn  string `json:"modified_on"`
	AuthorEmail string `json:"author_email"`
	AuthorID    string `json:"author_id"`
	Source      string `json:"source"`
	HasPreview  bool   `json:"has_preview"`
}

type resourcesShape struct {
	Bindings []bindingShape `json:"bindings"`
	Script   scriptShape    `json:"script"`
	Runtime  runtimeShape   `json:"script_runtime"`
}

type scriptShape struct {
	ETag     string   `json:"etag"`
	Handlers []string `json:"handlers"`
}

type runtimeShape struct {
	CompatibilityDate  string   `json:"compatibility_date"`
	CompatibilityFlags []string `json:"compatibility_flags"`
	UsageModel         string   `json:"usage_model"`
}

type bindingShape struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	JSON any    `json:"json,omitempty"`
	Part string `json:"part,omitempty"`
}

type deploymentShape struct {
	ID          string            `json:"id"`
	CreatedOn   string            `json:"created_on"`
	Source      string            `json:"source"`
	Strategy    string            `json:"strategy"`
	AuthorEmail string            `json:"author_email"`
	Annotations map[string]string `json:"annotations"`
	Versions    []shareShape      `json:"versions"`
}

type shareShape struct {
	VersionID  string  `json:"version_id"`
	Percentage float64 `json:"percentage"`
}

const (
	annotationMessage = "workers/message"
	annotationTag     = "workers/tag"
	// stamp sorts as text, which is how wrangler sorts it.
	stamp = "2006-01-02T15:04:05.000000Z"
)

func stampOf(t time.Time) string { return t.UTC().Format(stamp) }

// nobody is the author of what was written with kubectl.
const nobody = "kubectl"

func authorOf(name string) string {
	if name == "" {
		return nobody
	}
	return name
}

func sourceOf(author string) string {
	if author == "" {
		return "api"
	}
	return "wrangler"
}

func shapeOf(v version.Version) versionShape {
	annotations := map[string]string{}
	if v.Message != "" {
		annotations[annotationMessage] = v.Message
	}
	if v.Tag != "" {
		annotations[annotationTag] = v.Tag
	}
	created := stampOf(v.CreatedOn)
	return versionShape{
		ID: v.ID, Annotations: annotations,
		Metadata: metadataShape{CreatedOn: created, ModifiedOn: created, AuthorEmail: authorOf(v.Author), AuthorID: authorOf(v.Author), Source: sourceOf(v.Author)},
		Resources: resourcesShape{
			Bindings: bindingsOf(v),
			Script:   scriptShape{ETag: strings.Join(v.Script.ScriptURLs, ","), Handlers: []string{"fetch"}},
			Runtime: runtimeShape{
				CompatibilityDate: v.Script.CompatibilityDate, CompatibilityFlags: append([]string{}, v.Script.CompatibilityFlags...), UsageModel: "standard",
			},
		},
	}
}

// bindingsOf are those of a version: of secrets the names alone.
func bindingsOf(v version.Version) []bindingShape {
	all := []bindingShape{}
	for _, b := range v.Script.Bindings {
		shape := bindingShape{Name: b.Name, Type: b.Type, Text: b.Text, Part: b.Part}
		if b.JSON != nil {
			shape.JSON = b.JSON
		}
		all = append(all, shape)
	}
	return append(all, secretsOf(v.SecretNames)...)
}

func secretsOf(names []string) []bindingShape {
	all := []bindingShape{}
	for _, name := range slices.Sorted(slices.Values(names)) {
		all = append(all, bindingShape{Name: name, Type: release.BindingSecretText})
	}
	return all
}

func deploymentOf(d deployer.Deployment) deploymentShape {
	annotations := map[string]string{}
	if d.Message != "" {
		annotations[annotationMessage] = d.Message
	}
	return deploymentShape{
		ID: d.ID, CreatedOn: stampOf(d.CreatedOn), Source: sourceOf(d.Author), Strategy: "percentage", AuthorEmail: authorOf(d.Author),
		Annotations: annotations, Versions: []shareShape{{VersionID: d.Version, Percentage: 100}},
	}
}
