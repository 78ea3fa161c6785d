// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// errNotServed is returned for a manifest with objects of API versions that the cluster does not
// serve. None is converted: Helm records the rendered manifest, and every
// later upgrade and uninstall, by any Helm, builds its objects from that record.
var errNotServed = errors.New("this cluster does not serve the API versions of")

// maxNotServed bounds the objects that an error names.
const maxNotServed = 10

// Build decodes the objects of a manifest. Its error names all objects whose API version is not
// served, and the version to use; Helm's names only the first object.
func (f *reportingClient) Build(manifest io.Reader, validate bool) (kube.ResourceList, error) {
	raw, err := io.ReadAll(manifest)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	resources, err := f.Client.Build(bytes.NewReader(raw), validate)
	if !meta.IsNoMatchError(err) {
		return resources, err
	}
	mapper, other := f.mapper()
	if other != nil {
		return nil, other
	}
	if found := findNotServed(mapper, raw); len(found) > 0 {
		err = fmt.Errorf("%w %s", errNotServed, joinLimited(found))
	}
	f.deleteErrors = []error{err} // before a deletion Helm drops this error as well
	return nil, err
}

func joinLimited(objects []string) string {
	text := strings.Join(objects[:min(len(objects), maxNotServed)], ", ")
	if more := len(objects) - maxNotServed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// findNotServed describes the objects of a manifest whose API version is not served.
func findNotServed(mapper meta.RESTMapper, manifest []byte) []string {
	var found []string
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		document, err := documents.Read()
		if err != nil {
			return found
		}
		var object unstructured.Unstructured
		if err := yaml.Unmarshal(document, &object.Object); err != nil || object.GetKind() == "" {
			continue
		}
		was := object.GroupVersionKind()
		if _, err := mapper.RESTMapping(was.GroupKind(), was.Version); meta.IsNoMatchError(err) {
			found = append(found, fmt.Sprintf("%s %s (%s: %s)", was.Kind, object.GetName(), was.GroupVersion(), suggestVersion(mapper, was)))
		}
	}
}

// suggestVersion names the version that serves a kind.
func suggestVersion(mapper meta.RESTMapper, was schema.GroupVersionKind) string {
	for _, group := range candidateGroups(was) {
		if m, err := mapper.RESTMapping(schema.GroupKind{Group: group, Kind: was.Kind}); err == nil {
			return "use " + m.GroupVersionKind.GroupVersion().String()
		}
	}
	return "no version of the kind is served"
}

// candidateGroups returns the group of a kind, and those to which a built-in kind has moved. A
// kind of the same name in another group is not the same kind.
func candidateGroups(was schema.GroupVersionKind) []string {
	groups := []string{was.Group}
	if !scheme.Scheme.Recognizes(was) {
		return groups
	}
	for known := range scheme.Scheme.AllKnownTypes() {
		if known.Kind == was.Kind {
			groups = append(groups, known.Group)
		}
	}
	slices.Sort(groups[1:])
	return groups
}
