// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"errors"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

func schemaJSON(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/schema.yaml")
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func testSchema(t testing.TB) *Schema {
	t.Helper()
	s, err := NewSchema(schemaJSON(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// content reads YAML as a client of an API server reads the JSON of it; no text
// is no content.
func content(t testing.TB, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	m := map[string]any{}
	if err := json.Unmarshal(encoded, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func copied(s States) States {
	return States{Hub: runtime.DeepCopyJSON(s.Hub), Spoke: runtime.DeepCopyJSON(s.Spoke)}
}

type mergeCase struct {
	reason string
	// base of both sides, unless the spoke's is another.
	base, baseSpoke string
	hub, spoke      string
	// want of both sides, unless the spoke is to have another.
	want, wantSpoke string
	// ifSpokeWins is what both become if that matters.
	ifSpokeWins string
	conflicts   []string
}

func (c mergeCase) run(t *testing.T, s *Schema) {
	base := States{Hub: content(t, c.base), Spoke: content(t, or(c.baseSpoke, c.base))}
	now := States{Hub: content(t, c.hub), Spoke: content(t, c.spoke)}
	before := []States{copied(base), copied(now)}
	for _, winner := range []Side{Hub, Spoke} {
		got, err := s.Merge(base, now, winner)
		if err != nil {
			t.Fatalf("%s: %v", c.reason, err)
		}
		want := States{Hub: content(t, c.want), Spoke: content(t, or(c.wantSpoke, c.want))}
		if winner == Spoke && c.ifSpokeWins != "" {
			want = States{Hub: content(t, c.ifSpokeWins), Spoke: content(t, c.ifSpokeWins)}
		}
		if diff := cmp.Diff(Result{States: want, Conflicts: c.conflicts}, got); diff != "" {
			t.Errorf("%s: if %s wins (-want +got):\n%s", c.reason, winner, diff)
		}
	}
	if diff := cmp.Diff(before, []States{base, now}); diff != "" {
		t.Errorf("an argument was changed:\n%s", diff)
	}
}

func check(t *testing.T, s *Schema, cases map[string]mergeCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { c.run(t, s) })
	}
}

func TestMergeFields(t *testing.T) {
	check(t, testSchema(t), map[string]mergeCase{
		"nobody changed anything": {
			reason: "there is nothing to do",
			base:   `{spec: {state: on}}`, hub: `{spec: {state: on}}`, spoke: `{spec: {state: on}}`, want: `{spec: {state: on}}`,
		},
		"only the hub changed a field": {
			reason: "the spoke follows",
			base:   `{spec: {state: on, size: 1}}`, hub: `{spec: {state: off, size: 1}}`, spoke: `{spec: {state: on, size: 1}}`,
			want: `{spec: {state: off, size: 1}}`,
		},
		"only the spoke changed a field": {
			reason: "the hub follows, whoever wins conflicts",
			base:   `{spec: {size: 1}}`, hub: `{spec: {size: 1}}`, spoke: `{spec: {size: 1}, status: {phase: Up}}`,
			want: `{spec: {size: 1}, status: {phase: Up}}`,
		},
		"both changed different fields": {
			reason: "both get both",
			base:   `{spec: {state: on, size: 1}, status: {phase: Up}}`,
			hub:    `{spec: {state: off, size: 1}, status: {phase: Up}}`, spoke: `{spec: {state: on, size: 2}}`,
			want: `{spec: {state: off, size: 2}}`,
		},
		"both changed a field to the same value": {
			reason: "they agree",
			base:   `{spec: {size: 1}}`, hub: `{spec: {size: 2, state: on}}`, spoke: `{spec: {size: 2, paused: true}}`,
			want: `{spec: {size: 2, state: on, paused: true}}`,
		},
		"both changed a field to different values": {
			reason: "the winner decides this field and no other",
			base:   `{spec: {state: on, size: 1}}`, hub: `{spec: {state: off, size: 1, paused: true}}`, spoke: `{spec: {state: auto, size: 2}}`,
			want: `{spec: {state: off, size: 2, paused: true}}`, ifSpokeWins: `{spec: {state: auto, size: 2, paused: true}}`,
			conflicts: []string{".spec.state"},
		},
		"one removed a field that the other changed": {
			reason: "a field that is absent can win",
			base:   `{spec: {state: on}}`, hub: `{spec: {}}`, spoke: `{spec: {state: off}}`,
			want: `{spec: {}}`, ifSpokeWins: `{spec: {state: off}}`, conflicts: []string{".spec.state"},
		},
		"both removed a field": {
			reason: "they agree",
			base:   `{spec: {state: on, size: 1}}`, hub: `{spec: {size: 1}}`, spoke: `{spec: {size: 2}}`, want: `{spec: {size: 2}}`,
		},
		"both added a field with different values": {
			reason: "nobody knows which is right",
			base:   `{spec: {}}`, hub: `{spec: {target: 1}}`, spoke: `{spec: {target: "1"}}`,
			want: `{spec: {target: 1}}`, ifSpokeWins: `{spec: {target: "1"}}`, conflicts: []string{".spec.target"},
		},
		"labels and annotations": {
			reason: "they are merged by key",
			base:   `{metadata: {labels: {a: "1", b: "1"}}}`, hub: `{metadata: {labels: {a: "2", b: "1"}}}`,
			spoke: `{metadata: {labels: {a: "1", b: "1", c: "1"}, annotations: {example.com/note: x}}}`,
			want:  `{metadata: {labels: {a: "2", b: "1", c: "1"}, annotations: {example.com/note: x}}}`,
		},
		"an annotation that both changed": {
			reason: "its path is the key as it is",
			base:   `{}`, hub: `{metadata: {annotations: {example.com/note: x}}}`, spoke: `{metadata: {annotations: {example.com/note: y}}}`,
			want: `{metadata: {annotations: {example.com/note: x}}}`, ifSpokeWins: `{metadata: {annotations: {example.com/note: y}}}`,
			conflicts: []string{".metadata.annotations.example.com/note"},
		},
		"other top-level fields": {
			reason: "a resource may have its content anywhere",
			base:   `{data: {a: 1}}`, hub: `{data: {a: 2}}`, spoke: `{data: {a: 1}, immutable: true}`, want: `{data: {a: 2}, immutable: true}`,
		},
		"a side that has no content": {
			reason: "nil is an empty content",
			base:   `{spec: {size: 1}}`, hub: ``, spoke: `{spec: {size: 1}, status: {phase: Up}}`, want: `{status: {phase: Up}}`,
		},
	})
}

func TestMergeRemovedPartConflictsAsAWhole(t *testing.T) {
	check(t, testSchema(t), map[string]mergeCase{
		"the status is gone": {
			reason: "half of a status is none",
			base:   `{spec: {size: 1}, status: {phase: Up, count: 1}}`, hub: `{spec: {size: 2}}`, spoke: `{spec: {size: 1}, status: {phase: Up, count: 2}}`,
			want: `{spec: {size: 2}}`, ifSpokeWins: `{spec: {size: 2}, status: {phase: Up, count: 2}}`, conflicts: []string{".status"},
		},
		"a map is null": {
			reason: "null has no keys either",
			base:   `{spec: {limits: {cpu: "1", memory: "1"}}}`, hub: `{spec: {limits: {cpu: "2", memory: "1"}}}`, spoke: `{spec: {limits: null}}`,
			want: `{spec: {limits: {cpu: "2", memory: "1"}}}`, ifSpokeWins: `{spec: {limits: null}}`, conflicts: []string{".spec.limits"},
		},
		"a key of a map is gone": {
			reason: "only the key is in dispute",
			base:   `{spec: {limits: {cpu: "1", memory: "1"}}}`, hub: `{spec: {limits: {memory: "1"}}}`, spoke: `{spec: {limits: {cpu: "2", memory: "2"}}}`,
			want: `{spec: {limits: {memory: "2"}}}`, ifSpokeWins: `{spec: {limits: {cpu: "2", memory: "2"}}}`,
			conflicts: []string{".spec.limits.cpu"},
		},
		"an item of a list is gone": {
			reason: "the item is in dispute, not its field, and the other items are merged",
			base:   `{spec: {ports: [{name: a, port: 1, tags: [x]}, {name: b, port: 1}]}}`, hub: `{spec: {ports: [{name: b, port: 1}]}}`,
			spoke: `{spec: {ports: [{name: a, port: 2, tags: [x]}, {name: b, port: 2}]}}`,
			want:  `{spec: {ports: [{name: b, port: 2}]}}`, ifSpokeWins: `{spec: {ports: [{name: a, port: 2, tags: [x]}, {name: b, port: 2}]}}`,
			conflicts: []string{`.spec.ports[name="a"]`},
		},
		"a list is gone": {
			reason: "every item went with it",
			base:   `{spec: {ports: [{name: a, port: 1}, {name: b, port: 1}]}}`, hub: `{spec: {ports: [{name: a, port: 1}, {name: b, port: 2}]}}`, spoke: `{spec: {}}`,
			want: `{spec: {ports: [{name: a, port: 1}, {name: b, port: 2}]}}`, ifSpokeWins: `{spec: {}}`, conflicts: []string{".spec.ports"},
		},
		"a set is gone": {
			reason: "an addition to what is gone has no place",
			base:   `{spec: {tags: [a]}}`, hub: `{spec: {}}`, spoke: `{spec: {tags: [a, b]}}`,
			want: `{spec: {}}`, ifSpokeWins: `{spec: {tags: [a, b]}}`, conflicts: []string{".spec.tags"},
		},
		"a part is gone that the other left alone": {
			reason: "nobody disputes it",
			base:   `{spec: {size: 1}, status: {phase: Up}}`, hub: `{spec: {size: 2}, status: {phase: Up}}`, spoke: `{spec: {size: 1}}`, want: `{spec: {size: 2}}`,
		},
		"a map became a text": {
			reason: "what a map was can be changed no more",
			base:   `{spec: {raw: {a: 1}}}`, hub: `{spec: {raw: {a: 2}}}`, spoke: `{spec: {raw: text}}`,
			want: `{spec: {raw: {a: 2}}}`, ifSpokeWins: `{spec: {raw: text}}`, conflicts: []string{".spec.raw"},
		},
	})
}

func TestMergeTreatsMisfitAsOneValue(t *testing.T) {
	check(t, testSchema(t), map[string]mergeCase{
		"two items have one key": {
			reason: "nobody can tell which is meant",
			base:   `{spec: {ports: [{name: a}, {name: a, port: 1}], size: 1}}`, hub: `{spec: {ports: [{name: a}], size: 1}}`,
			spoke: `{spec: {ports: [{name: a}, {name: a, port: 2}], size: 2}}`,
			want:  `{spec: {ports: [{name: a}], size: 2}}`, ifSpokeWins: `{spec: {ports: [{name: a}, {name: a, port: 2}], size: 2}}`,
			conflicts: []string{".spec.ports"},
		},
		"two values of a set are one": {
			reason: "a definition may have become stricter",
			base:   `{spec: {tags: [a, a]}}`, hub: `{spec: {tags: [a, a, b]}}`, spoke: `{spec: {tags: [a, a]}}`, want: `{spec: {tags: [a, a, b]}}`,
		},
		"an item has no key": {
			reason: "it cannot be found in the other list",
			base:   `{spec: {ports: [{name: a}]}}`, hub: `{spec: {ports: [{name: a}, {port: 1}]}}`, spoke: `{spec: {ports: [{name: a}, {name: b}]}}`,
			want: `{spec: {ports: [{name: a}, {port: 1}]}}`, ifSpokeWins: `{spec: {ports: [{name: a}, {name: b}]}}`, conflicts: []string{".spec.ports"},
		},
		"the key of an item is null": {
			reason: "null is no key",
			base:   `{spec: {ports: []}}`, hub: `{spec: {ports: [{name: null}]}}`, spoke: `{spec: {ports: [{name: b}]}}`,
			want: `{spec: {ports: [{name: null}]}}`, ifSpokeWins: `{spec: {ports: [{name: b}]}}`, conflicts: []string{".spec.ports"},
		},
		"an item is no map": {
			reason: "it has no fields to be found by",
			base:   `{spec: {ports: [a]}}`, hub: `{spec: {ports: [a, b]}}`, spoke: `{spec: {ports: [a]}}`, want: `{spec: {ports: [a, b]}}`,
		},
		"the values of a set are maps": {
			reason: "only scalars are told apart by themselves",
			base:   `{spec: {tags: [{a: 1}]}}`, hub: `{spec: {tags: [{a: 1}, {b: 1}]}}`, spoke: `{spec: {tags: [{a: 2}]}}`,
			want: `{spec: {tags: [{a: 1}, {b: 1}]}}`, ifSpokeWins: `{spec: {tags: [{a: 2}]}}`, conflicts: []string{".spec.tags"},
		},
		"the base was a text": {
			reason: "both made another thing of it",
			base:   `{spec: {free: text, ports: text}}`, hub: `{spec: {free: {a: 1}, ports: [{name: a}]}}`, spoke: `{spec: {free: {b: 1}, ports: [{name: b}]}}`,
			want: `{spec: {free: {a: 1}, ports: [{name: a}]}}`, ifSpokeWins: `{spec: {free: {b: 1}, ports: [{name: b}]}}`,
			conflicts: []string{".spec.free", ".spec.ports"},
		},
		"maps in place of a text": {
			reason: "a text has no keys",
			base:   `{spec: {state: {a: 1, b: 1}}}`, hub: `{spec: {state: {a: 2, b: 1}}}`, spoke: `{spec: {state: {a: 1, b: 2}}}`,
			want: `{spec: {state: {a: 2, b: 1}}}`, ifSpokeWins: `{spec: {state: {a: 1, b: 2}}}`, conflicts: []string{".spec.state"},
		},
		"lists in place of a map": {
			reason: "nothing is known of their items",
			base:   `{spec: []}`, hub: `{spec: [a]}`, spoke: `{spec: [b]}`, want: `{spec: [a]}`, ifSpokeWins: `{spec: [b]}`, conflicts: []string{".spec"},
		},
		"labels that are no map": {
			reason: "no API server has such, and nobody gets stuck",
			base:   `{metadata: {labels: x}}`, hub: `{metadata: {labels: {a: b}}}`, spoke: `{metadata: {labels: x}}`, want: `{metadata: {labels: {a: b}}}`,
		},
	})
}

func TestMergeWithoutSchema(t *testing.T) {
	cases := map[string]mergeCase{
		"maps": {
			reason: "keys are all that is known of them",
			base:   `{spec: {free: {m: {a: 1, b: 1}}}}`, hub: `{spec: {free: {m: {a: 2, b: 1}}}}`, spoke: `{spec: {free: {m: {a: 1}, n: null}}}`,
			want: `{spec: {free: {m: {a: 2}, n: null}}}`,
		},
		"lists": {
			reason: "what tells items apart is not known, even if they have names",
			base:   `{spec: {free: {l: [{name: a}]}}}`, hub: `{spec: {free: {l: [{name: a}, {name: b}]}}}`, spoke: `{spec: {free: {l: [{name: a}, {name: c}]}}}`,
			want: `{spec: {free: {l: [{name: a}, {name: b}]}}}`, ifSpokeWins: `{spec: {free: {l: [{name: a}, {name: c}]}}}`,
			conflicts: []string{".spec.free.l"},
		},
		"an embedded object": {
			reason: "its metadata are fields like others",
			base:   `{spec: {template: {apiVersion: v1, kind: Pod, metadata: {name: x, labels: {a: "1"}}}}}`,
			hub:    `{spec: {template: {apiVersion: v1, kind: Pod, metadata: {name: x, labels: {a: "2"}}}}}`,
			spoke:  `{spec: {template: {apiVersion: v1, kind: Pod, metadata: {name: x, labels: {a: "1", b: "1"}}, spec: {nodeName: n}}}}`,
			want:   `{spec: {template: {apiVersion: v1, kind: Pod, metadata: {name: x, labels: {a: "2", b: "1"}}, spec: {nodeName: n}}}}`,
		},
		"a field that the definition has no more": {
			reason: "an API server keeps it until the object is written",
			base:   `{spec: {old: {a: 1, b: 1}}}`, hub: `{spec: {old: {a: 2, b: 1}}}`, spoke: `{spec: {old: {a: 1, b: 2}}}`, want: `{spec: {old: {a: 2, b: 2}}}`,
		},
	}
	none, err := NewSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Schema{"of a definition": testSchema(t), "none": none, "zero": {}} {
		t.Run(name, func(t *testing.T) { check(t, s, cases) })
	}
	check(t, testSchema(t), map[string]mergeCase{
		"a known field among unknown ones": {
			reason: "the definition may know some of the fields that it preserves",
			base:   `{spec: {free: {names: [a]}}}`, hub: `{spec: {free: {names: [a, b]}}}`, spoke: `{spec: {free: {names: []}}}`, want: `{spec: {free: {names: [b]}}}`,
		},
	})
}

func TestMergeDistinguishesAbsentNullAndEmpty(t *testing.T) {
	check(t, testSchema(t), map[string]mergeCase{
		"null": {
			reason: "a nullable field may say so",
			base:   `{spec: {state: on}}`, hub: `{spec: {state: null}}`, spoke: `{spec: {state: on, size: 1}}`, want: `{spec: {state: null, size: 1}}`,
		},
		"null against absent": {
			reason: "both changed the value, and to another",
			base:   `{spec: {state: on}}`, hub: `{spec: {state: null}}`, spoke: `{spec: {}}`,
			want: `{spec: {state: null}}`, ifSpokeWins: `{spec: {}}`, conflicts: []string{".spec.state"},
		},
		"empty against absent": {
			reason: "API servers keep both as they are",
			base:   `{spec: {limits: {a: "1"}, args: [a]}}`, hub: `{spec: {limits: {}, args: []}}`, spoke: `{spec: {}}`,
			want: `{spec: {limits: {}, args: []}}`, ifSpokeWins: `{spec: {}}`, conflicts: []string{".spec.args", ".spec.limits"},
		},
		"empty came": {
			reason: "that is a change",
			base:   `{spec: {}}`, hub: `{spec: {limits: {}, ports: []}}`, spoke: `{spec: {size: 1}}`, want: `{spec: {limits: {}, ports: [], size: 1}}`,
		},
		"null became a map on both sides": {
			reason: "both added keys to what had none",
			base:   `{spec: {limits: null}}`, hub: `{spec: {limits: {a: "1"}}}`, spoke: `{spec: {limits: {b: "1"}}}`, want: `{spec: {limits: {a: "1", b: "1"}}}`,
		},
	})
}

func TestMergeComparesNumbersByValue(t *testing.T) {
	s := &Schema{}
	of := func(v any) map[string]any { return map[string]any{"n": v} }
	for name, c := range map[string]struct {
		reason string
		a, b   any
		same   bool
	}{
		"whole":          {"JSON has one kind of number", int64(2), float64(2), true},
		"negative zero":  {"it is zero", int64(0), math.Copysign(0, -1), true},
		"fraction":       {"it is no integer", int64(2), 2.5, false},
		"beyond a float": {"2^53+1 is no float64, the nearest is 2^53", int64(1<<53 + 1), float64(1 << 53), false},
		"beyond an int":  {"2^63 is one more than the greatest int64", int64(1<<63 - 1), float64(1 << 63), false},
		"overflow":       {"2^63 is not what it would wrap around to", int64(math.MinInt64), float64(1 << 63), false},
		"text":           {"a digit is no number", int64(2), "2", false},
		"floats":         {"they are compared as such", 2.5, 2.5, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := s.Differences(of(c.a), of(c.b))
			if err != nil || (len(got) == 0) != c.same {
				t.Errorf("%s: %v, %v", c.reason, got, err)
			}
		})
	}
}

func TestNewSchemaRefusesInvalid(t *testing.T) {
	for name, c := range map[string]struct{ reason, schema, want string }{
		"no JSON": {"it is of another format", `{`, "cannot read the schema"},
		"list types that nobody knows": {
			"the message is the same whenever it is read",
			`{"type": "object", "properties": {"b": {"type": "array", "x-kubernetes-list-type": "bag", "items": {}}, "a": {"type": "array", "x-kubernetes-list-type": "map", "items": {}}}}`,
			"cannot convert the schema: inlined in object: missing map keys; inlined in object: unknown list type bag",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewSchema([]byte(c.schema)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

func TestMergeRootByKey(t *testing.T) {
	for name, c := range map[string]struct{ reason, schema string }{
		"null":     {"it says nothing", `null`},
		"no type":  {"anything goes", `{}`},
		"a text":   {"no object is one", `{"type": "string"}`},
		"a ref":    {"definitions have none", `{"$ref": "#/definitions/x"}`},
		"atomic":   {"an object of one value could not be merged", `{"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"spec": {"type": "object"}}}`},
		"metadata": {"a definition has no say in labels", `{"type": "object", "properties": {"metadata": {"type": "object", "x-kubernetes-map-type": "atomic"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewSchema([]byte(c.schema))
			if err != nil {
				t.Fatal(err)
			}
			mergeCase{
				reason: c.reason,
				base:   `{metadata: {labels: {a: "1"}}}`, hub: `{metadata: {labels: {a: "2"}}}`,
				spoke: `{metadata: {labels: {a: "1", b: "1"}}, spec: {x: 1}}`, want: `{metadata: {labels: {a: "2", b: "1"}}, spec: {x: 1}}`,
			}.run(t, s)
		})
	}
}

func TestSchemaIsSafeForConcurrentUse(t *testing.T) {
	s := testSchema(t)
	base := content(t, `{spec: {ports: [{name: a, port: 1}], limits: {a: "1"}}}`)
	now := States{
		Hub:   content(t, `{spec: {ports: [{name: a, port: 2}], limits: {a: "1"}}}`),
		Spoke: content(t, `{spec: {ports: [{name: a, port: 1}], limits: {a: "2"}}, status: {phase: Up}}`),
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := s.Merge(States{Hub: base, Spoke: base}, now, Hub); err != nil || got.Conflicts != nil {
				t.Errorf("%v, %v", got.Conflicts, err)
			}
		})
	}
	wg.Wait()
}

func TestMergeRefusesInvalidContent(t *testing.T) {
	s := testSchema(t)
	good, bad := map[string]any{}, map[string]any{"metadata": map[string]any{"labels": []any{map[string]string{"a": "b"}}}}
	for name, c := range map[string]struct {
		reason    string
		base, now States
		winner    Side
		want      error
	}{
		"labels of another type":   {"they would not be merged by key", States{good, good}, States{good, bad}, Hub, ErrNotJSON},
		"a base of another type":   {"it was not read from the same place", States{bad, good}, States{good, good}, Hub, ErrNotJSON},
		"nobody wins":              {"a conflict could not be decided", States{}, States{}, "", ErrUnknownSide},
		"a side that there is not": {"it would be taken for the spoke", States{}, States{}, "hub", ErrUnknownSide},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := s.Merge(c.base, c.now, c.winner); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", c.reason, err)
			}
			if _, err := s.MergeUncertain(States{}, c.base, c.now, Hub, c.winner); !errors.Is(err, c.want) {
				t.Errorf("%s: unsure: %v", c.reason, err)
			}
		})
	}
	if _, err := s.MergeUncertain(States{good, good}, States{good, good}, States{good, good}, "", Hub); !errors.Is(err, ErrUnknownSide) {
		t.Errorf("nothing was written: %v", err)
	}
	if _, err := s.Apply(good, bad, good); !errors.Is(err, ErrNotJSON) {
		t.Errorf("Apply: %v", err)
	}
	if _, err := s.Differences(good, bad); !errors.Is(err, ErrNotJSON) {
		t.Errorf("Differences: %v", err)
	}
}
