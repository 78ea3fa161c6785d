// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"
)

// FuzzMerge: whatever the contents and the schema are, nothing panics, no argument
// changes, and the laws of merging hold.
func FuzzMerge(f *testing.F) {
	schema := schemaJSON(f)
	f.Add(schema, []byte(`{"spec": {"size": 1}}`), []byte(`{"spec": {"size": 2}}`), []byte(`{"spec": {"size": 1.0}, "status": {}}`), false)
	f.Add([]byte{}, []byte(`null`), []byte(`{"a": [null]}`), []byte(`{"a": {}}`), true)
	f.Fuzz(func(t *testing.T, schema, base, hub, spoke []byte, spokeWins bool) {
		s, err := NewSchema(schema)
		if err != nil {
			return // a definition that no API server takes
		}
		contents := make([]map[string]any, 3)
		for i, text := range [][]byte{base, hub, spoke} {
			if json.Unmarshal(text, &contents[i]) != nil {
				return // JSON of something else
			}
		}
		was := States{Hub: contents[0], Spoke: contents[1]}
		now := States{Hub: contents[1], Spoke: contents[2]}
		before := []States{copied(was), copied(now)}
		winner := Hub
		if spokeWins {
			winner = Spoke
		}
		laws(t, s, equalBases(was.Hub), now, winner)
		lawsOfEqualBases(t, s, was.Hub, now, winner)
		laws(t, s, was, now, winner)
		laws(t, s, was, States{Hub: now.Spoke, Spoke: now.Hub}, winner)
		if _, err := s.MergeUncertain(was, now, equalBases(now.Spoke), Hub, winner); err != nil {
			t.Error(err)
		}
		s.Prune(was.Hub, now.Spoke)
		if !reflect.DeepEqual(before, []States{was, now}) {
			t.Error("an argument was changed")
		}
	})
}
