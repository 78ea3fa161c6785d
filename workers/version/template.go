// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
)

// Template returns a digest that is the same for all templates that are served alike: in either
// spelling of a field, in any order of what has none, and with JSON as a developer wrote it or
// as an API server has stored it.
func Template(s release.Script) string {
	s.ScriptURLs, s.ScriptsURLs = script.URLs(s), nil
	if date, err := script.Date(s.CompatibilityDate); err == nil {
		s.CompatibilityDate = date
	}
	s.CompatibilityFlags = slices.Compact(slices.Sorted(slices.Values(s.CompatibilityFlags)))
	s.ModuleTypes = slices.Clone(s.ModuleTypes)
	slices.SortStableFunc(s.ModuleTypes, func(a, b release.ModuleType) int { return cmp.Compare(a.Name, b.Name) })
	s.Bindings = slices.Clone(s.Bindings)
	slices.SortStableFunc(s.Bindings, func(a, b release.Binding) int { return cmp.Compare(a.Name, b.Name) })
	for i := range s.Bindings {
		if value := s.Bindings[i].JSON; value != nil {
			s.Bindings[i].JSON = &apiextensionsv1.JSON{Raw: canonicalJSON(value.Raw)}
		}
	}
	sum := sha256.New()
	//nolint:errchkjson // a hash takes everything, and canonical leaves no JSON that is none
	_ = json.NewEncoder(sum).Encode(s)
	return hex.EncodeToString(sum.Sum(nil))
}

// canonicalJSON returns JSON as an API server returns it once it was stored: with sorted keys and
// with numbers as Go writes them. -0.0 is stored as -0, which is read as 0, hence twice. What is
// no JSON is the text that it is.
func canonicalJSON(raw []byte) []byte {
	for range 2 {
		var value any
		if err := utiljson.Unmarshal(raw, &value); err != nil {
			value = string(raw)
		}
		written, err := json.Marshal(value)
		if err != nil {
			return nil // it cannot be: the value was read from JSON
		}
		raw = written
	}
	return raw
}
