// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import "testing"

func TestMergeListsByKey(t *testing.T) {
	check(t, testSchema(t), map[string]mergeCase{
		"both added an item": {
			reason: "both have both, the winner's first",
			base:   `{spec: {ports: [{name: a}]}}`, hub: `{spec: {ports: [{name: a}, {name: h}]}}`, spoke: `{spec: {ports: [{name: a}, {name: s}]}}`,
			want: `{spec: {ports: [{name: a}, {name: h}, {name: s}]}}`, ifSpokeWins: `{spec: {ports: [{name: a}, {name: s}, {name: h}]}}`,
		},
		"both added the first items": {
			reason: "there is no list that they were added to",
			base:   `{spec: {ports: null}}`, hub: `{spec: {ports: [{name: h, port: 1}]}}`, spoke: `{spec: {ports: [{name: s}, {name: h, tags: [x]}]}}`,
			want: `{spec: {ports: [{name: s}, {name: h, port: 1, tags: [x]}]}}`,
		},
		"both changed different fields of an item": {
			reason: "items are merged as maps",
			base:   `{spec: {ports: [{name: a, port: 1, routes: [{name: r, port: 1}]}]}}`, hub: `{spec: {ports: [{name: a, port: 2, routes: [{name: r, port: 1}]}]}}`,
			spoke: `{spec: {ports: [{name: a, port: 1, routes: [{name: r, port: 2}]}]}}`, want: `{spec: {ports: [{name: a, port: 2, routes: [{name: r, port: 2}]}]}}`,
		},
		"both changed a field of an item": {
			reason: "the path names the item by its key",
			base:   `{spec: {ports: [{name: a, routes: [{name: r, port: 1}]}]}}`, hub: `{spec: {ports: [{name: a, routes: [{name: r, port: 2}]}]}}`,
			spoke: `{spec: {ports: [{name: a, routes: [{name: r, port: 3}]}]}}`,
			want:  `{spec: {ports: [{name: a, routes: [{name: r, port: 2}]}]}}`, ifSpokeWins: `{spec: {ports: [{name: a, routes: [{name: r, port: 3}]}]}}`,
			conflicts: []string{`.spec.ports[name="a"].routes[name="r"].port`},
		},
		"a key of several fields, one with a default": {
			reason: "an item without the field is the item with the default, as for API servers",
			base:   `{spec: {doors: [{number: 1, protocol: TCP}, {number: 1, protocol: UDP}]}}`,
			hub:    `{spec: {doors: [{number: 1, protocol: TCP, open: true}, {number: 1, protocol: UDP}]}}`, spoke: `{spec: {doors: [{number: 1, open: false}, {number: 1, protocol: UDP}]}}`,
			want:        `{spec: {doors: [{number: 1, open: true}, {number: 1, protocol: UDP}]}}`,
			ifSpokeWins: `{spec: {doors: [{number: 1, open: false}, {number: 1, protocol: UDP}]}}`,
			conflicts:   []string{`.spec.doors[number=1,protocol="TCP"].open`},
		},
		"one removed all items": {
			reason: "an empty list is a list, so additions have a place",
			base:   `{spec: {ports: [{name: a}]}}`, hub: `{spec: {ports: []}}`, spoke: `{spec: {ports: [{name: a}, {name: b}]}}`, want: `{spec: {ports: [{name: b}]}}`,
		},
		"both added to a set and removed from it": {
			reason: "a set has each value once",
			base:   `{spec: {tags: [a, b, c]}}`, hub: `{spec: {tags: [b, c, h, x]}}`, spoke: `{spec: {tags: [s, a, b, x]}}`,
			want: `{spec: {tags: [s, b, h, x]}}`,
		},
		"numbers of a set": {
			reason: "1 and 1.0 are one value",
			base:   `{spec: {sizes: [1, 2.5]}}`, hub: `{spec: {sizes: [1, 2.5, 3]}}`, spoke: `{spec: {sizes: [2.5]}}`, want: `{spec: {sizes: [2.5, 3]}}`,
		},
		"an atomic list": {
			reason: "the list is one value",
			base:   `{spec: {args: [a, b]}}`, hub: `{spec: {args: [a, b, c]}}`, spoke: `{spec: {args: [b]}}`,
			want: `{spec: {args: [a, b, c]}}`, ifSpokeWins: `{spec: {args: [b]}}`, conflicts: []string{".spec.args"},
		},
		"an atomic map": {
			reason: "the map is one value",
			base:   `{spec: {colour: {red: 1, green: 1}}}`, hub: `{spec: {colour: {red: 2, green: 1}}}`, spoke: `{spec: {colour: {red: 1, green: 2}}}`,
			want: `{spec: {colour: {red: 2, green: 1}}}`, ifSpokeWins: `{spec: {colour: {red: 1, green: 2}}}`, conflicts: []string{".spec.colour"},
		},
	})
}

func TestMergeListOrder(t *testing.T) {
	check(t, testSchema(t), map[string]mergeCase{
		"one changed the order": {
			reason: "the other follows, and keeps what it added",
			base:   `{spec: {ports: [{name: a}, {name: b}]}}`, hub: `{spec: {ports: [{name: a, port: 1}, {name: b}]}}`,
			spoke: `{spec: {ports: [{name: b}, {name: a}, {name: c}]}}`, want: `{spec: {ports: [{name: b}, {name: a, port: 1}, {name: c}]}}`,
		},
		"both changed the order": {
			reason: "only one order can be had",
			base:   `{spec: {tags: [a, b, c]}}`, hub: `{spec: {tags: [b, a, c]}}`, spoke: `{spec: {tags: [a, c, b, d]}}`,
			want: `{spec: {tags: [b, a, c, d]}}`, ifSpokeWins: `{spec: {tags: [a, c, b, d]}}`, conflicts: []string{".spec.tags"},
		},
		"both added the same items": {
			reason: "and in different orders, of which only one can be had",
			base:   `{spec: {tags: [a]}}`, hub: `{spec: {tags: [x, a]}}`, spoke: `{spec: {tags: [a, x]}}`,
			want: `{spec: {tags: [x, a]}}`, ifSpokeWins: `{spec: {tags: [a, x]}}`, conflicts: []string{".spec.tags"},
		},
		"one changed the order, and both added an item": {
			reason: "whoever only added has no opinion on the order",
			base:   `{spec: {tags: [a, b]}}`, hub: `{spec: {tags: [b, a, x]}}`, spoke: `{spec: {tags: [x, a, b]}}`, want: `{spec: {tags: [b, a, x]}}`,
		},
		"an item was added in the middle": {
			reason: "it stays before the item that follows it",
			base:   `{spec: {tags: [a, c], size: 1}}`, hub: `{spec: {tags: [a, c], size: 2}}`, spoke: `{spec: {tags: [a, b, c], size: 1}}`,
			want: `{spec: {tags: [a, b, c], size: 2}}`,
		},
		"orders that always differed": {
			reason: "nobody changed one, so nobody's is changed",
			base:   `{spec: {tags: [a, b]}}`, baseSpoke: `{spec: {tags: [b, a]}}`, hub: `{spec: {tags: [a, b], size: 1}}`, spoke: `{spec: {tags: [b, a]}}`,
			want: `{spec: {tags: [a, b], size: 1}}`, wantSpoke: `{spec: {tags: [b, a], size: 1}}`,
		},
		"an addition to orders that always differed": {
			reason: "it has a place in each, and again if this merge is repeated",
			base:   `{spec: {tags: [a, b]}}`, baseSpoke: `{spec: {tags: [b, a]}}`, hub: `{spec: {tags: [a, x, b]}}`, spoke: `{spec: {tags: [x, b, a]}}`,
			want: `{spec: {tags: [a, x, b]}}`, wantSpoke: `{spec: {tags: [x, b, a]}}`,
		},
	})
}
