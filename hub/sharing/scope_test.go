// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/api/wire"
)

// at is an object of a version.
func at(version string) *object {
	return &object{uid: "u", version: version, generation: versionNumber(version), hash: version}
}

// versions are those of the objects of a scope.
func (s *scope) versions() map[string]string {
	out := map[string]string{}
	for name, o := range s.objects {
		out[name] = o.version
	}
	return out
}

func TestScopeKeepsLatestVersion(t *testing.T) {
	tests := map[string]struct {
		reason string
		do     func(s *scope)
		want   map[string]string
	}{
		"later":   {reason: "it is what there is", do: func(s *scope) { s.putObject("a", at("11")) }, want: map[string]string{"a": "11"}},
		"earlier": {reason: "the watch is behind an answer", do: func(s *scope) { s.putObject("a", at("9")) }, want: map[string]string{"a": "10"}},
		"longer":  {reason: "versions are numbers", do: func(s *scope) { s.putObject("a", at("100")) }, want: map[string]string{"a": "100"}},
		"deleted": {reason: "it is not there", do: func(s *scope) { s.deleteObject("a", "u", "12") }, want: map[string]string{}},
		"the deletion of the one before": {
			reason: "the watch is behind an answer", do: func(s *scope) { s.deleteObject("a", "before", "9") }, want: map[string]string{"a": "10"},
		},
		"an answer that is older than a deletion": {
			reason: "the watch is ahead of an answer", want: map[string]string{},
			do: func(s *scope) {
				s.keepDeletions()
				s.deleteObject("a", "u", "12")
				s.putObject("a", at("11"))
			},
		},
		"an answer that is later than a deletion": {
			reason: "it was made again", want: map[string]string{"a": "13"},
			do: func(s *scope) {
				s.keepDeletions()
				s.deleteObject("a", "u", "12")
				s.putObject("a", at("13"))
			},
		},
		"a list": {
			reason: "it is what there is", want: map[string]string{"a": "11", "b": "5"},
			do: func(s *scope) { s.mergeList(map[string]*object{"a": at("11"), "b": at("5")}, "20", false) },
		},
		"a list without it": {reason: "it is not there", want: map[string]string{}, do: func(s *scope) { s.mergeList(nil, "20", false) }},
		"a list that is older than an answer": {
			reason: "the watch will say", want: map[string]string{"a": "10"}, do: func(s *scope) { s.mergeList(nil, "9", false) },
		},
		"a list with an older version": {
			reason: "it is older than an answer", want: map[string]string{"a": "10"},
			do: func(s *scope) { s.mergeList(map[string]*object{"a": at("8")}, "9", false) },
		},
		"a list that is older than a deletion": {
			reason: "it was deleted since", want: map[string]string{},
			do: func(s *scope) {
				s.keepDeletions()
				s.deleteObject("a", "u", "12")
				s.mergeList(map[string]*object{"a": at("10")}, "11", false)
			},
		},
		"a list of a server that was restored": {
			reason: "its past is what there is", want: map[string]string{"a": "8"},
			do: func(s *scope) { s.mergeList(map[string]*object{"a": at("8")}, "9", true) },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScope(&objectWatch{}, place{})
			s.putObject("a", at("10"))
			tc.do(s)
			if diff := cmp.Diff(tc.want, s.versions()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestScopeKeepsDeletionsOnlyDuringRequests(t *testing.T) {
	s := newScope(&objectWatch{}, place{})
	s.putObject("a", at("10"))
	s.deleteObject("a", "u", "12")
	if len(s.deletedAt) > 0 {
		t.Errorf("remembered %v, and nobody waits", s.deletedAt)
	}
	s.keepDeletions()
	s.keepDeletions()
	s.deleteObject("b", "u", "13")
	s.releaseDeletions()
	if len(s.deletedAt) != 1 {
		t.Errorf("remembered %v, want b", s.deletedAt)
	}
	s.releaseDeletions()
	if len(s.deletedAt) > 0 {
		t.Errorf("remembered %v, and nobody waits", s.deletedAt)
	}
}

// The object was made, and deleted by somebody, before the answer came.
func TestLateResponseDoesNotRestoreDeletedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		r.api.lose = func(string) error {
			r.api.drop(widgets, "c1", "b")
			r.api.mu.Unlock()
			defer r.api.mu.Lock()
			time.Sleep(time.Second)
			return nil
		}
		generation := a.requestWrite("s/b", wire.PartObject, `{"spec":{"size":2}}`)
		r.settle()
		if o, _ := a.getObject("s/b"); o.Version != "" || o.Applied != generation {
			t.Errorf("known %+v", o)
		}
		if got := r.api.writes(); len(got) != 1 || !strings.HasPrefix(got[0], "create") {
			t.Errorf("requests %v", got)
		}
	})
}
