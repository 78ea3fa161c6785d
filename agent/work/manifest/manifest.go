// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

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

// Errors of manifests that cannot be applied as they are.
var (
	ErrNotObject    = errors.New("manifest is not a JSON object")                       // anything else than {...}
	ErrNoKind       = errors.New("apiVersion and kind must be set in manifest")         // one of them is empty
	ErrNoName       = errors.New("name must be set in manifest")                        // the API server would not choose one either
	ErrGenerateName = errors.New("generateName must not be set in manifest")            // each apply would create another object
	ErrMalformed    = errors.New("manifest is malformed")                               // no JSON, or not the shape of an object
	ErrInvalidName  = errors.New("name or namespace in manifest is not a path segment") // it would change the path of the request
)

// Manifest is one entry of a work as it was written: what it names is decoded,
// its content stays JSON until it is applied.
type Manifest struct {
	Ordinal   int
	GVK       schema.GroupVersionKind
	Namespace string
	Name      string
	Raw       []byte
	Hash      [sha256.Size]byte
	// Err says why the manifest can never be applied as it is.
	Err error
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

// ParseAll reads every manifest of a work; a bad one carries its error.
func ParseAll(in []workv1.Manifest) []Manifest {
	out := make([]Manifest, len(in))
	for i := range in {
		out[i] = Parse(i, in[i].Raw)
	}
	return out
}

// Parse reads one manifest; a bad one carries its error.
func Parse(ordinal int, raw []byte) Manifest {
	m := Manifest{Ordinal: ordinal, Raw: raw, Hash: hashOf(raw)}
	var h header
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		m.Err = fmt.Errorf("failed to decode object: %w", ErrNotObject)
		return m
	}
	// With encoding/json a field "Kind" would be the kind here, and none to an API server.
	if err := utiljson.Unmarshal(raw, &h); err != nil {
		m.Err = fmt.Errorf("failed to decode object: %w", ErrMalformed)
		return m
	}
	m.Namespace, m.Name = h.Metadata.Namespace, h.Metadata.Name
	gv, err := schema.ParseGroupVersion(h.APIVersion)
	if err != nil {
		m.Err = fmt.Errorf("failed to decode object: %w", err)
		return m
	}
	m.GVK = gv.WithKind(h.Kind)
	switch {
	case h.Kind == "" || gv.Version == "":
		m.Err = fmt.Errorf("failed to decode object: %w", ErrNoKind)
	case h.Metadata.GenerateName != "":
		m.Err = ErrGenerateName
	case m.Name == "":
		m.Err = ErrNoName
	case len(content.IsPathSegmentName(m.Name)) > 0 || len(content.IsPathSegmentName(m.Namespace)) > 0:
		m.Err = ErrInvalidName
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
	obj, err := Decode(raw)
	if err != nil {
		return sha256.Sum256(raw)
	}
	text, err := json.Marshal(obj)
	if err != nil {
		return sha256.Sum256(raw)
	}
	return sha256.Sum256(text)
}

// Configuration returns what is applied: the manifest without what belongs to
// the API server or to another cluster, named as target and owned by owners.
func (m Manifest) Configuration(at Target, owners []metav1.OwnerReference) ([]byte, error) {
	obj, err := Decode(m.Raw)
	if err != nil {
		return nil, err
	}
	return Configuration(obj, at, owners)
}

// Object is the same, decoded.
func (m Manifest) Object(at Target, owners []metav1.OwnerReference) (*unstructured.Unstructured, error) {
	text, err := m.Configuration(at, owners)
	if err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("failed to decode object: %w", err)
	}
	return obj, nil
}

// Configuration does so with a decoded manifest, which it changes.
func Configuration(obj map[string]any, at Target, owners []metav1.OwnerReference) ([]byte, error) {
	delete(obj, "status")
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("failed to decode object: %w", ErrNoName)
	}
	trimMetadata(meta)
	normalize(obj)
	meta["name"] = at.Name
	delete(meta, "namespace")
	if at.Namespace != "" {
		meta["namespace"] = at.Namespace
	}
	setOwnerReferences(meta, owners)
	out, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("failed to encode object: %w", err)
	}
	return out, nil
}

// Decode reads a manifest without the nulls that are never applied. Numbers
// stay as they are written: a float64 would change large integers.
func Decode(raw []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var obj map[string]any
	if err := d.Decode(&obj); err != nil || obj == nil {
		return nil, fmt.Errorf("failed to decode object: %w", ErrMalformed)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("failed to decode object: trailing data: %w", ErrMalformed)
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

func setOwnerReferences(meta map[string]any, owners []metav1.OwnerReference) {
	refs := make([]any, 0, len(owners))
	for _, o := range owners {
		refs = append(refs, map[string]any{"apiVersion": o.APIVersion, "kind": o.Kind, "name": o.Name, "uid": string(o.UID)})
	}
	if len(refs) > 0 {
		meta["ownerReferences"] = refs
	}
}

// ObjectID names an object of the spoke, in whatever version it is read.
type ObjectID struct {
	Group, Resource, Namespace, Name string
}

// String is for people: "deployments.apps ns/name".
func (id ObjectID) String() string {
	gr := schema.GroupResource{Group: id.Group, Resource: id.Resource}
	if id.Namespace == "" {
		return gr.String() + " " + id.Name
	}
	return gr.String() + " " + id.Namespace + "/" + id.Name
}

// Target is an object and how it is addressed.
type Target struct {
	ObjectID
	Version, Kind string
}

// GVR is the resource in the version of the manifest.
func (t Target) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: t.Group, Version: t.Version, Resource: t.Resource}
}

// Identifier is the object in the words of OCM's API.
func (t Target) Identifier() workv1.ResourceIdentifier {
	return workv1.ResourceIdentifier{Group: t.Group, Resource: t.Resource, Namespace: t.Namespace, Name: t.Name}
}
