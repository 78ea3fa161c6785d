// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDroppedFieldStaysOnTheOtherSide(t *testing.T) {
	check(t, testSchema(t), map[string]mergeCase{
		"the spoke changed another field": {
			reason: "the hub keeps x, and the spoke does not get it",
			base:   `{spec: {free: {x: 1, y: 1}}}`, baseSpoke: `{spec: {free: {y: 1}}}`,
			hub: `{spec: {free: {x: 1, y: 1}}}`, spoke: `{spec: {free: {y: 2}}}`,
			want: `{spec: {free: {x: 1, y: 2}}}`, wantSpoke: `{spec: {free: {y: 2}}}`,
		},
		"the hub changed another field": {
			reason: "the spoke does not get x on this occasion",
			base:   `{spec: {free: {x: 1, y: 1}}}`, baseSpoke: `{spec: {free: {y: 1}}}`,
			hub: `{spec: {free: {x: 1, y: 2}}}`, spoke: `{spec: {free: {y: 1}}}`,
			want: `{spec: {free: {x: 1, y: 2}}}`, wantSpoke: `{spec: {free: {y: 2}}}`,
		},
		"the hub changed the field": {
			reason: "the spoke's definition may know it by now",
			base:   `{spec: {free: {x: 1}}}`, baseSpoke: `{spec: {free: {}}}`, hub: `{spec: {free: {x: 2}}}`, spoke: `{spec: {free: {}}}`,
			want: `{spec: {free: {x: 2}}}`,
		},
		"the hub removed the field": {
			reason: "the spoke has it not anyway",
			base:   `{spec: {free: {x: 1}}}`, baseSpoke: `{spec: {free: {}}}`, hub: `{spec: {free: {}}}`, spoke: `{spec: {free: {y: 1}}}`,
			want: `{spec: {free: {y: 1}}}`,
		},
		"both changed it": {
			reason: "the spoke's definition knows it by now",
			base:   `{spec: {free: {x: 1}}}`, baseSpoke: `{spec: {free: {}}}`, hub: `{spec: {free: {x: 2}}}`, spoke: `{spec: {free: {x: 3}}}`,
			want: `{spec: {free: {x: 2}}}`, ifSpokeWins: `{spec: {free: {x: 3}}}`, conflicts: []string{".spec.free.x"},
		},
		"a field of an item": {
			reason: "items are merged as maps",
			base:   `{spec: {ports: [{name: a, x: 1}]}}`, baseSpoke: `{spec: {ports: [{name: a}]}}`,
			hub: `{spec: {ports: [{name: a, x: 1}, {name: h, x: 2}]}}`, spoke: `{spec: {ports: [{name: s}, {name: a, port: 1}]}}`,
			want:      `{spec: {ports: [{name: s}, {name: a, port: 1, x: 1}, {name: h, x: 2}]}}`,
			wantSpoke: `{spec: {ports: [{name: s}, {name: a, port: 1}, {name: h, x: 2}]}}`,
		},
		"the spoke removed what has the field": {
			reason: "whoever removes the whole means every part of it",
			base:   `{spec: {ports: [{name: a, x: 1}]}, status: {x: 1, y: 1}}`, baseSpoke: `{spec: {ports: [{name: a}]}, status: {y: 1}}`,
			hub: `{spec: {ports: [{name: a, x: 1}]}, status: {x: 1, y: 1}}`, spoke: `{spec: {ports: []}}`, want: `{spec: {ports: []}}`,
		},
		"the spoke changed the atomic list that has the field": {
			reason: "the list is one value",
			base:   `{spec: {steps: [{run: a, x: 1}], size: 1}}`, baseSpoke: `{spec: {steps: [{run: a}], size: 1}}`,
			hub: `{spec: {steps: [{run: a, x: 1}], size: 2}}`, spoke: `{spec: {steps: [{run: b}], size: 1}}`, want: `{spec: {steps: [{run: b}], size: 2}}`,
		},
		"the whole status": {
			reason: "the spoke's definition may have none",
			base:   `{spec: {size: 1}, status: {phase: Up}}`, baseSpoke: `{spec: {size: 1}}`,
			hub: `{spec: {size: 1}, status: {phase: Up}}`, spoke: `{spec: {size: 2}}`,
			want: `{spec: {size: 2}, status: {phase: Up}}`, wantSpoke: `{spec: {size: 2}}`,
		},
	})
}

func TestMergeWithoutBaseReportsEveryDifference(t *testing.T) {
	for name, missing := range map[string]States{
		"no base at all": {},
		"none of a side": {Hub: map[string]any{"spec": map[string]any{"size": int64(1)}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, hub := testSchema(t), content(t, `{spec: {size: 1, tags: [a, b], ports: [{name: a, port: 1}, {name: h}]}, status: {phase: Up}}`)
			spoke := content(t, `{spec: {size: 2, tags: [b, a], ports: [{name: a, port: 2}]}, metadata: {labels: {a: b}}}`)
			for winner, want := range map[Side]map[string]any{Hub: hub, Spoke: spoke} {
				got, err := s.Merge(missing, States{Hub: hub, Spoke: spoke}, winner)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(States{Hub: want, Spoke: want}, got.States); diff != "" {
					t.Errorf("if %s wins (-want +got):\n%s", winner, diff)
				}
				conflicts := []string{".metadata", `.spec.ports[name="a"].port`, `.spec.ports[name="h"]`, ".spec.size", ".spec.tags", ".status"}
				if diff := cmp.Diff(conflicts, got.Conflicts); diff != "" {
					t.Errorf("conflicts (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestMergeUncertainFollowsWrittenSide(t *testing.T) {
	s := testSchema(t)
	for name, c := range map[string]struct {
		reason            string
		written           Side
		a, b              string
		hub, spoke        string
		hubWins, spokWins string
		conflicts         []string
	}{
		"one base": {
			reason: "there is nothing to be unsure of", written: Hub,
			a: `{spec: {size: 1}}`, b: `{spec: {size: 1}}`, hub: `{spec: {size: 2}}`, spoke: `{spec: {size: 1, state: on}}`,
			hubWins: `{spec: {size: 2, state: on}}`,
		},
		"a field in which the bases agree": {
			reason: "only size was written", written: Spoke,
			a: `{spec: {size: 1, state: on}}`, b: `{spec: {size: 2, state: on}}`,
			hub: `{spec: {size: 2, state: off}}`, spoke: `{spec: {size: 2, state: on}}`, hubWins: `{spec: {size: 2, state: off}}`,
		},
		"the write was done": {
			reason: "both have what it wrote", written: Spoke,
			a: `{spec: {size: 1}}`, b: `{spec: {size: 2}}`, hub: `{spec: {size: 2}}`, spoke: `{spec: {size: 2}}`, hubWins: `{spec: {size: 2}}`,
		},
		"the write was not done": {
			reason: "the side that was to be written has what it had", written: Spoke,
			a: `{spec: {size: 1}}`, b: `{spec: {size: 2}}`, hub: `{spec: {size: 2}}`, spoke: `{spec: {size: 1}}`, hubWins: `{spec: {size: 2}}`,
		},
		"the write was done, and the other side has gone on": {
			reason: "the same contents, written the other way", written: Hub,
			a: `{spec: {size: 1}}`, b: `{spec: {size: 2}}`, hub: `{spec: {size: 2}}`, spoke: `{spec: {size: 1}}`, hubWins: `{spec: {size: 1}}`,
		},
		"the write was not done, and the side that was to be written has another change": {
			reason: "each side changed a field of its own", written: Hub,
			a: `{spec: {size: 1, state: on}}`, b: `{spec: {size: 2, state: on}}`,
			hub: `{spec: {size: 1, state: off}}`, spoke: `{spec: {size: 2, state: on}}`, hubWins: `{spec: {size: 2, state: off}}`,
		},
		"the written side has what neither base has": {
			reason: "the other side may not have seen it, so that somebody's value may be lost", written: Hub,
			a: `{spec: {size: 1}}`, b: `{spec: {size: 2}}`, hub: `{spec: {size: 3}}`, spoke: `{spec: {size: 2}}`,
			hubWins: `{spec: {size: 3}}`, spokWins: `{spec: {size: 2}}`, conflicts: []string{".spec.size"},
		},
		"the other side has what neither base has": {
			reason: "the write was done", written: Spoke,
			a: `{spec: {size: 1}}`, b: `{spec: {size: 2}}`, hub: `{spec: {size: 3}}`, spoke: `{spec: {size: 2}}`, hubWins: `{spec: {size: 3}}`,
		},
		"an item that was not written": {
			reason: "the other items are as sure as ever", written: Spoke,
			a: `{spec: {ports: [{name: a}]}}`, b: `{spec: {ports: [{name: a}, {name: b}]}}`,
			hub: `{spec: {ports: [{name: a, port: 1}, {name: b}]}}`, spoke: `{spec: {ports: [{name: a}]}}`,
			hubWins: `{spec: {ports: [{name: a, port: 1}, {name: b}]}}`,
		},
		"an item that was written, and removed": {
			reason: "the other side has it no more", written: Hub,
			a: `{spec: {ports: [{name: a}]}}`, b: `{spec: {ports: [{name: a}, {name: b}]}}`,
			hub: `{spec: {ports: [{name: a, port: 1}, {name: b}]}}`, spoke: `{spec: {ports: [{name: a}]}}`,
			hubWins: `{spec: {ports: [{name: a, port: 1}]}}`,
		},
		"an order that was not written": {
			reason: "an order is a value", written: Spoke,
			a: `{spec: {tags: [a, b]}}`, b: `{spec: {tags: [b, a]}}`, hub: `{spec: {tags: [b, a]}}`, spoke: `{spec: {tags: [a, b]}}`,
			hubWins: `{spec: {tags: [b, a]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := content(t, c.a), content(t, c.b)
			now := States{Hub: content(t, c.hub), Spoke: content(t, c.spoke)}
			for winner, text := range map[Side]string{Hub: c.hubWins, Spoke: or(c.spokWins, c.hubWins)} {
				want := Result{States: States{Hub: content(t, text), Spoke: content(t, text)}, Conflicts: c.conflicts}
				for range 2 {
					got, err := s.MergeUncertain(States{Hub: a, Spoke: a}, States{Hub: b, Spoke: b}, now, c.written, winner)
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s: if %s wins (-want +got):\n%s", c.reason, winner, diff)
					}
					a, b = b, a
				}
			}
		})
	}
}

func TestMergeUncertainKeepsChangesOfBothSides(t *testing.T) {
	s := testSchema(t)
	has, lacks := content(t, `{spec: {free: {x: 1}}}`), content(t, `{spec: {free: {}}}`)
	// The hub's x was dropped by the spoke, or else the hub has just got it.
	got, err := s.MergeUncertain(States{Hub: has, Spoke: lacks}, States{Hub: lacks, Spoke: lacks}, States{Hub: has, Spoke: lacks}, Spoke, Hub)
	if err != nil {
		t.Fatal(err)
	}
	want := Result{States: States{Hub: has, Spoke: has}, Conflicts: []string{".spec.free.x"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestApplyCopiesChanges(t *testing.T) {
	s := testSchema(t)
	for name, c := range map[string]struct{ reason, from, to, onto, want string }{
		"nothing changed": {
			"the follower stays as it is", `{spec: {size: 1}}`, `{spec: {size: 1}}`, `{spec: {size: 2}}`, `{spec: {size: 2}}`,
		},
		"a field, an item, and a removal": {
			"what the follower has besides stays",
			`{spec: {size: 1, state: on, ports: [{name: a}, {name: b}]}}`, `{spec: {size: 2, ports: [{name: a, port: 1}, {name: c}]}}`,
			`{spec: {size: 1, state: on, paused: true, ports: [{name: x}, {name: a}, {name: b}]}}`,
			`{spec: {size: 2, paused: true, ports: [{name: x}, {name: a, port: 1}, {name: c}]}}`,
		},
		"a field that the follower has otherwise": {
			"the side that is followed wins", `{spec: {size: 1}}`, `{spec: {size: 2}}`, `{spec: {size: 3}}`, `{spec: {size: 2}}`,
		},
		"a field that the follower's definition dropped": {
			"an unrelated change does not bring it back", `{spec: {size: 1, x: 1}}`, `{spec: {size: 2, x: 1}}`, `{spec: {size: 1}}`, `{spec: {size: 2}}`,
		},
		"another order": {
			"an order is a value", `{spec: {tags: [a, b]}}`, `{spec: {tags: [b, a]}}`, `{spec: {tags: [x, a, b]}}`, `{spec: {tags: [b, x, a]}}`,
		},
		"nothing is known": {"the follower gets the whole", ``, `{spec: {size: 1}}`, `{spec: {state: on}, status: {phase: Up}}`, `{spec: {size: 1}}`},
		"no follower yet":  {"only changes are applied", `{spec: {size: 1, state: on}}`, `{spec: {size: 2, state: on}}`, ``, `{spec: {size: 2, state: on}}`},
		"nothing is left":  {"everything was removed", `{spec: {size: 1}}`, ``, `{spec: {size: 1}, status: {phase: Up}}`, `{status: {phase: Up}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := s.Apply(content(t, c.from), content(t, c.to), content(t, c.onto))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(content(t, c.want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestDifferencesReturnsPaths(t *testing.T) {
	s := testSchema(t)
	for name, c := range map[string]struct {
		reason, a, b string
		want         []string
	}{
		"none":           {"numbers are the same by value", `{spec: {size: 1, tags: [a]}}`, `{spec: {size: 1.0, tags: [a]}}`, nil},
		"no content":     {"nil is an empty content", ``, `{}`, nil},
		"fields":         {"they are sorted", `{spec: {size: 1, state: on}, status: {phase: Up}}`, `{spec: {size: 2}}`, []string{".spec.size", ".spec.state", ".status"}},
		"items":          {"by their keys", `{spec: {ports: [{name: a, port: 1}, {name: b}]}}`, `{spec: {ports: [{name: a}]}}`, []string{`.spec.ports[name="a"].port`, `.spec.ports[name="b"]`}},
		"sets":           {"by their values", `{spec: {tags: [a, b], sizes: [1.5]}}`, `{spec: {tags: [b, c], sizes: []}}`, []string{".spec.sizes[=1.5]", `.spec.tags[="a"]`, `.spec.tags[="c"]`}},
		"an order":       {"it is the list that differs", `{spec: {tags: [a, b]}}`, `{spec: {tags: [b, a]}}`, []string{".spec.tags"}},
		"one path twice": {"a key may look like a path", `{data: {a.b: 1, a: {b: 1}}}`, `{data: {a.b: 2, a: {b: 2}}}`, []string{".data.a.b"}},
		"an atomic list": {"it is one value", `{spec: {args: [a, b]}}`, `{spec: {args: [a]}}`, []string{".spec.args"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := s.Differences(content(t, c.a), content(t, c.b))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestPruneRemovesDroppedFields(t *testing.T) {
	s := testSchema(t)
	for name, c := range map[string]struct{ reason, wrote, got, want string }{
		"nothing was dropped":   {"the base is what was written", `{spec: {size: 1, tags: [a]}}`, `{spec: {size: 1, tags: [a]}}`, `{spec: {size: 1, tags: [a]}}`},
		"a field was dropped":   {"the side's definition has it not", `{spec: {size: 1, x: {y: 1}}}`, `{spec: {size: 1}}`, `{spec: {size: 1}}`},
		"a null was dropped":    {"API servers drop a null that is not allowed", `{spec: {size: null}}`, `{spec: {}}`, `{spec: {}}`},
		"the status is dropped": {"the side's definition has none", `{spec: {}, status: {phase: Up}}`, `{spec: {}}`, `{spec: {}}`},
		"a value was changed":   {"a webhook did, which is a change of that side", `{spec: {size: 1, limits: {a: "1"}}}`, `{spec: {size: 2, limits: null}}`, `{spec: {size: 1, limits: {a: "1"}}}`},
		"a value was added":     {"a default is a change of that side", `{spec: {}}`, `{spec: {size: 1}, status: {}}`, `{spec: {}}`},
		"within an item": {
			"items are found by key", `{spec: {ports: [{name: a, x: 1}, {name: b, x: 1}]}}`, `{spec: {ports: [{name: n}, {name: b}, {name: a, port: 1}]}}`,
			`{spec: {ports: [{name: a}, {name: b}]}}`,
		},
		"an item":           {"it is lacking as a field is", `{spec: {ports: [{name: a}, {name: b}], tags: [a, b]}}`, `{spec: {ports: [{name: b}], tags: [b]}}`, `{spec: {ports: [{name: b}], tags: [b]}}`},
		"in an atomic list": {"the list explains itself by position", `{spec: {steps: [{run: a, x: 1}, {run: b}]}}`, `{spec: {steps: [{run: a}, {run: b}]}}`, `{spec: {steps: [{run: a}, {run: b}]}}`},
		"in an atomic list that was changed": {
			"positions mean nothing then", `{spec: {steps: [{run: a, x: 1}, {y: b}]}}`, `{spec: {steps: [{y: b}, {run: a}]}}`, `{spec: {steps: [{run: a, x: 1}, {y: b}]}}`,
		},
		"a shorter atomic list":           {"it was changed", `{spec: {args: [a, b]}}`, `{spec: {args: [a]}}`, `{spec: {args: [a, b]}}`},
		"in items without keys":           {"they are found by position", `{spec: {ports: [{x: 1}, {port: 1}]}}`, `{spec: {ports: [{}, {port: 1}]}}`, `{spec: {ports: [{}, {port: 1}]}}`},
		"in a list of unknown type":       {"definitions drop fields in it too", `{spec: {free: {l: [[{x: 1, y: 1}]]}}}`, `{spec: {free: {l: [[{y: 1}]]}}}`, `{spec: {free: {l: [[{y: 1}]]}}}`},
		"in an atomic map":                {"a definition drops its fields like others", `{spec: {colour: {red: 1, x: 1}}}`, `{spec: {colour: {red: 1}}}`, `{spec: {colour: {red: 1}}}`},
		"a text in place of what was got": {"there is nothing to look into", `{spec: {free: a}}`, `{spec: {free: {a: 1}}}`, `{spec: {free: a}}`},
		"nothing was got":                 {"nothing was kept", `{spec: {size: 1}}`, ``, `{}`},
		"nothing was written":             {"there is no base", ``, `{spec: {size: 1}}`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			wrote, got := content(t, c.wrote), content(t, c.got)
			before := copied(States{wrote, got})
			if diff := cmp.Diff(content(t, c.want), s.Prune(wrote, got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(before, States{wrote, got}); diff != "" {
				t.Errorf("an argument was changed:\n%s", diff)
			}
		})
	}
}
