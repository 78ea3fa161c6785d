// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	workv1 "open-cluster-management.io/api/work/v1"
)

var (
	errNotObject    = errors.New("manifest is not a JSON object")
	errNoKind       = errors.New("apiVersion and kind must be set in manifest")
	errNoName       = errors.New("name must be set in manifest")
	errGenerateName = errors.New("generateName must not be set in manifest")
	errMalformed    = errors.New("manifest is malformed")
	errBadName      = errors.New("name or namespace in manifest is not a path segment")
)

// manifest is one entry of a work as it was written: what it names is decoded,
// its content stays JSON until it is applied.
type manifest struct {
	ordinal   int
	gvk       schema.GroupVersionKind
	namespace string
	name      string
	raw       []byte
	hash      [sha256.Size]byte
	// err says why the manifest can never be applied as it is.
	err error
}

// header is the part of a manifest that names it.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name         string `json:"name"`
		GenerateName string `json:"generateName"`
		Namespace    string `json:"namespace"`
	} `json:"metadata"`
}

// parseManifests reads every manifest of a work; a bad one carries its error.
func parseManifests(in []workv1.Manifest) []manifest {
	out := make([]manifest, len(in))
	for i := range in {
		out[i] = parseManifest(i, in[i].Raw)
	}
	return out
}

func parseManifest(ordinal int, raw []byte) manifest {
	m := manifest{ordinal: ordinal, raw: raw, hash: hashOf(raw)}
	var h header
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		m.err = fmt.Errorf("failed to decode object: %w", errNotObject)
		return m
	}
	// With encoding/json a field "Kind" would be the kind here, and none to an API server.
	if err := utiljson.Unmarshal(raw, &h); err != nil {
		m.err = fmt.Errorf("failed to decode object: %w", errMalformed)
		return m
	}
	m.namespace, m.name = h.Metadata.Namespace, h.Metadata.Name
	gv, err := schema.ParseGroupVersion(h.APIVersion)
	if err != nil {
		m.err = fmt.Errorf("failed to decode object: %w", err)
		return m
	}
	m.gvk = gv.WithKind(h.Kind)
	switch {
	case h.Kind == "" || gv.Version == "":
		m.err = fmt.Errorf("failed to decode object: %w", errNoKind)
	case h.Metadata.GenerateName != "":
		m.err = errGenerateName
	case m.name == "":
		m.err = errNoName
	case len(content.IsPathSegmentName(m.name)) > 0 || len(content.IsPathSegmentName(m.namespace)) > 0:
		m.err = errBadName
	}
	return m
}

// hashOf changes with what is applied, and not with nulls that are stripped before.
// What the hub sends has been encoded from a map, so a manifest without such nulls
// is hashed as it is: most works need no decoding here.
func hashOf(raw []byte) [sha256.Size]byte {
	if !bytes.Contains(raw, []byte(`"creationTimestamp"`)) {
		return sha256.Sum256(raw)
	}
	obj, err := decodeObject(raw)
	if err != nil {
		return sha256.Sum256(raw)
	}
	text, err := json.Marshal(obj)
	if err != nil {
		return sha256.Sum256(raw)
	}
	return sha256.Sum256(text)
}

// configuration returns what is applied: the manifest without what belongs to
// the API server or to another cluster, named as target and owned by owners.
func (m manifest) configuration(at target, owners []metav1.OwnerReference) ([]byte, error) {
	obj, err := decodeObject(m.raw)
	if err != nil {
		return nil, err
	}
	return buildConfiguration(obj, at, owners)
}

// decode is the same, decoded.
func (m manifest) decode(at target, owners []metav1.OwnerReference) (*unstructured.Unstructured, error) {
	text, err := m.configuration(at, owners)
	if err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("failed to decode object: %w", err)
	}
	return obj, nil
}

// buildConfiguration does so with a decoded manifest, which it changes.
func buildConfiguration(obj map[string]any, at target, owners []metav1.OwnerReference) ([]byte, error) {
	delete(obj, "status")
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("failed to decode object: %w", errNoName)
	}
	trimMetadata(meta)
	normalize(obj)
	meta["name"] = at.Name
	delete(meta, "namespace")
	if at.Namespace != "" {
		meta["namespace"] = at.Namespace
	}
	addOwners(meta, owners)
	out, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("failed to encode object: %w", err)
	}
	return out, nil
}

// decodeObject reads a manifest without the nulls that are never applied. Numbers
// stay as they are written: a float64 would change large integers.
func decodeObject(raw []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var obj map[string]any
	if err := d.Decode(&obj); err != nil || obj == nil {
		return nil, fmt.Errorf("failed to decode object: %w", errMalformed)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("failed to decode object: trailing data: %w", errMalformed)
	}
	stripCreationTimestamps(obj)
	return obj, nil
}

// stripCreationTimestamps removes "creationTimestamp: null" from every metadata
// at any depth: encoders of Go types write it, and a template that owns it would
// raise the object's generation with every apply.
func stripCreationTimestamps(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			if meta, ok := child.(map[string]any); ok && key == "metadata" {
				if stamp, has := meta["creationTimestamp"]; has && stamp == nil {
					delete(meta, "creationTimestamp")
				}
			}
			stripCreationTimestamps(child)
		}
	case []any:
		for _, child := range v {
			stripCreationTimestamps(child)
		}
	}
}

func addOwners(meta map[string]any, owners []metav1.OwnerReference) {
	refs := make([]any, 0, len(owners))
	for _, o := range owners {
		refs = append(refs, map[string]any{"apiVersion": o.APIVersion, "kind": o.Kind, "name": o.Name, "uid": string(o.UID)})
	}
	if len(refs) > 0 {
		meta["ownerReferences"] = refs
	}
}

// objectID names an object of the spoke, in whatever version it is read.
type objectID struct {
	Group, Resource, Namespace, Name string
}

func (id objectID) String() string {
	gr := schema.GroupResource{Group: id.Group, Resource: id.Resource}
	if id.Namespace == "" {
		return gr.String() + " " + id.Name
	}
	return gr.String() + " " + id.Namespace + "/" + id.Name
}

// target is an object and how it is addressed.
type target struct {
	objectID
	Version, Kind string
}

func (t target) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: t.Group, Version: t.Version, Resource: t.Resource}
}
