// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// FuzzMergeIsIdempotent: whatever is required of whatever is live, nothing
// panics, no argument changes, what was merged is the same from then on, and there are
// differences where it is not the same.
func FuzzMergeIsIdempotent(f *testing.F) {
	files, err := filepath.Glob("testdata/pairs/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range files {
		var pair struct{ Required, Live json.RawMessage }
		data, err := os.ReadFile(name)
		if err == nil {
			err = yaml.Unmarshal(data, &pair)
		}
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(pair.Required), []byte(pair.Live))
	}
	f.Fuzz(func(t *testing.T, required, live []byte) {
		want, have := &unstructured.Unstructured{}, &unstructured.Unstructured{}
		if json.Unmarshal(required, &want.Object) != nil || json.Unmarshal(live, &have.Object) != nil {
			return // JSON of something else
		}
		if want.GetKind() != have.GetKind() || want.GetAPIVersion() != have.GetAPIVersion() {
			have.SetAPIVersion(want.GetAPIVersion())
			have.SetKind(want.GetKind())
		}
		before := []*unstructured.Unstructured{want.DeepCopy(), have.DeepCopy()}
		found, cannot := Compare(want, have, 8)
		if _, verdict, err := Merge(want, have); (err == nil) != (cannot == nil) || err == nil && (verdict == Unchanged) != (found.Total == 0) {
			t.Errorf("%s, %v, and the differences are %v, %v", verdict, err, found, cannot)
		}
		for name, decide := range map[string]func(a, b *unstructured.Unstructured) (*unstructured.Unstructured, Verdict, error){"Merge": Merge, "Replace": Replace} {
			next, _, err := decide(want, have)
			if err != nil {
				continue
			}
			if _, verdict, err := decide(want, next); err != nil || verdict != Unchanged {
				t.Errorf("%s again: %s, %v", name, verdict, err)
			}
		}
		if !reflect.DeepEqual(before, []*unstructured.Unstructured{want, have}) {
			t.Error("an argument was changed")
		}
	})
}
