// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

func TestWorkKeysComeBack(t *testing.T) {
	want := WorkKey{Dialect: "d", Namespace: "n", Name: "a.b"}
	got, err := ParseWorkKey(want.String())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("key (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "a", "a/b", "a//c", "/b/c", "a/b/", "a/b/c/d"} {
		if _, err := ParseWorkKey(bad); !errors.Is(err, ErrInvalidWork) {
			t.Errorf("ParseWorkKey(%q) = %v", bad, err)
		}
	}
}

func goodStatus() WorkStatus {
	c := metav1.Condition{Type: "Applied", Status: metav1.ConditionTrue, Reason: "AppliedWorkComplete", LastTransitionTime: metav1.NewTime(time.Unix(1, 0).UTC())}
	return WorkStatus{
		ObservedGeneration: 1, Conditions: []metav1.Condition{c},
		Manifests: []workv1.ManifestCondition{{ResourceMeta: workv1.ManifestResourceMeta{Kind: "X"}, Conditions: []metav1.Condition{c}}},
	}
}

func TestStatusesThatTheHubCouldNotWriteAreRefused(t *testing.T) {
	tests := map[string]struct {
		reason string
		spoil  func(*WorkStatus)
		bad    bool
	}{
		"good":                {reason: "as the agent sends it", spoil: func(*WorkStatus) {}},
		"negative generation": {reason: "generations count up", spoil: func(s *WorkStatus) { s.ObservedGeneration = -1 }, bad: true},
		"odd type":            {reason: "the schema has a pattern", spoil: func(s *WorkStatus) { s.Conditions[0].Type = "a b" }, bad: true},
		"odd status":          {reason: "the schema has an enum", spoil: func(s *WorkStatus) { s.Conditions[0].Status = "Maybe" }, bad: true},
		"no reason":           {reason: "a reason is required", spoil: func(s *WorkStatus) { s.Conditions[0].Reason = "" }, bad: true},
		"no time":             {reason: "a time is required", spoil: func(s *WorkStatus) { s.Conditions[0].LastTransitionTime = metav1.Time{} }, bad: true},
		"long message":        {reason: "messages are bounded", spoil: func(s *WorkStatus) { s.Conditions[0].Message = strings.Repeat("m", maxWorkMessage+1) }, bad: true},
		"twice":               {reason: "types are keys", spoil: func(s *WorkStatus) { s.Conditions = append(s.Conditions, s.Conditions[0]) }, bad: true},
		"wrong ordinal":       {reason: "manifests are in order", spoil: func(s *WorkStatus) { s.Manifests[0].ResourceMeta.Ordinal = 1 }, bad: true},
		"bad manifest":        {reason: "the same rules hold", spoil: func(s *WorkStatus) { s.Manifests[0].Conditions[0].Reason = "-" }, bad: true},
		"many": {reason: "conditions are bounded", bad: true, spoil: func(s *WorkStatus) {
			for i := range maxWorkConditions {
				c := s.Conditions[0]
				c.Type = fmt.Sprintf("T%d", i)
				s.Conditions = append(s.Conditions, c)
			}
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := goodStatus()
			s.Manifests[0].Conditions = append([]metav1.Condition(nil), s.Manifests[0].Conditions...)
			tc.spoil(&s)
			body, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := DecodeWorkStatus(body); errors.Is(err, ErrInvalidWork) != tc.bad {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

func FuzzWorkStatus(f *testing.F) {
	body, err := json.Marshal(goodStatus())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"conditions":[{}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := DecodeWorkStatus(body)
		if err != nil {
			return
		}
		for _, c := range s.Conditions {
			if c.Reason == "" || c.LastTransitionTime.IsZero() {
				t.Errorf("accepted %+v", c)
			}
		}
	})
}

func FuzzWork(f *testing.F) {
	f.Add([]byte(`{"generation":1,"spec":{"workload":{"manifests":[{"kind":"X"}]}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if w, err := DecodeWork(body); err == nil && w.Generation < 0 {
			t.Errorf("accepted generation %d", w.Generation)
		}
	})
}
