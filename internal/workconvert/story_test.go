// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workconvert

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rewrite = flag.Bool("rewrite", false, "rewrite the stories with what happens")

// TestStories replays testdata/<dialect>/*.txt: a line is a step, the lines
// beneath it that begin with a space are the status that it brings about.
//
//	report TIME GENERATION CONDITIONS | MANIFEST CONDITIONS VALUES | ...   by the agent
//	theirs work|MANIFEST CONDITION                                         by a third party
//
// A condition is written Type, Type! (False) or Type? (Unknown), then
// /observedGeneration, =Reason and, where it is stored, @time. A value is written
// {name:text}.
func TestStories(t *testing.T) {
	tests := map[string]func() stage{
		"manifestwork": func() stage { return &ocmStage{} },
		"multicluster": func() stage { return &sigStage{} },
	}
	for name, open := range tests {
		files, err := filepath.Glob("testdata/" + name + "/*.txt")
		if err != nil || len(files) == 0 {
			t.Fatalf("no stories of %s: %v", name, err)
		}
		for _, file := range files {
			t.Run(name+"/"+filepath.Base(file), func(t *testing.T) {
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				got := replay(t, open(), string(want))
				if *rewrite {
					if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
					return
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("the story goes otherwise (-told +happened):\n%s", diff)
				}
			})
		}
	}
}

// stage is the status of one work.
type stage interface {
	report(r wire.WorkStatus, now metav1.Time)
	// conditions of a manifest, or of the work if the name is "work".
	conditions(name string) *[]metav1.Condition
	show() []string
}

func replay(t *testing.T, s stage, text string) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, " ") {
			continue
		}
		out = append(out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		switch words[0] {
		case "report":
			r, now := parseReport(t, line)
			s.report(r, now)
		case "theirs":
			list := s.conditions(words[1])
			*list = append(*list, parseCondition(t, words[2]))
		default:
			t.Fatalf("no step %q", words[0])
		}
		for _, shown := range s.show() {
			out = append(out, " "+shown)
		}
	}
	return strings.Join(out, "\n") + "\n"
}

func parseReport(t *testing.T, line string) (wire.WorkStatus, metav1.Time) {
	t.Helper()
	parts := strings.Split(line, "|")
	head := strings.Fields(parts[0])
	r := wire.WorkStatus{ObservedGeneration: number(t, head[2])}
	for _, word := range head[3:] {
		r.Conditions = append(r.Conditions, parseCondition(t, word))
	}
	for i, part := range parts[1:] {
		words := strings.Fields(part)
		m := workv1.ManifestCondition{ResourceMeta: workv1.ManifestResourceMeta{Ordinal: int32(i), Kind: "ConfigMap", Name: words[0]}}
		for _, word := range words[1:] {
			if name, text, ok := strings.Cut(strings.Trim(word, "{}"), ":"); ok {
				m.StatusFeedbacks.Values = append(m.StatusFeedbacks.Values,
					workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.String, String: &text}})
				continue
			}
			m.Conditions = append(m.Conditions, parseCondition(t, word))
		}
		r.Manifests = append(r.Manifests, m)
	}
	return r, at(number(t, head[1]))
}

func parseCondition(t *testing.T, word string) metav1.Condition {
	t.Helper()
	c := metav1.Condition{Status: metav1.ConditionTrue, LastTransitionTime: at(0)}
	word, when, timed := strings.Cut(word, "@")
	if timed {
		c.LastTransitionTime = at(number(t, when))
	}
	word, c.Reason, _ = strings.Cut(word, "=")
	word, generation, observed := strings.Cut(word, "/")
	if observed {
		c.ObservedGeneration = number(t, generation)
	}
	c.Type = strings.TrimRight(word, "!?")
	switch {
	case strings.HasSuffix(word, "!"):
		c.Status = metav1.ConditionFalse
	case strings.HasSuffix(word, "?"):
		c.Status = metav1.ConditionUnknown
	}
	return c
}

func showCondition(c metav1.Condition) string {
	text := c.Type + map[metav1.ConditionStatus]string{metav1.ConditionFalse: "!", metav1.ConditionUnknown: "?"}[c.Status]
	if c.ObservedGeneration != 0 {
		text += fmt.Sprintf("/%d", c.ObservedGeneration)
	}
	if c.Reason != "" {
		text += "=" + c.Reason
	}
	return fmt.Sprintf("%s@%d", text, c.LastTransitionTime.Unix())
}

func showLine(name string, conditions []metav1.Condition, values []workv1.FeedbackValue) string {
	words := []string{name}
	for _, c := range conditions {
		words = append(words, showCondition(c))
	}
	for _, v := range values {
		words = append(words, "{"+v.Name+":"+*v.Value.String+"}")
	}
	return strings.Join(words, " ")
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func at(seconds int64) metav1.Time { return metav1.NewTime(time.Unix(seconds, 0)) }

type ocmStage struct{ status workv1.ManifestWorkStatus }

func (s *ocmStage) report(r wire.WorkStatus, now metav1.Time) {
	s.status = MergeManifestWork(s.status, r, now)
}

func (s *ocmStage) conditions(name string) *[]metav1.Condition {
	for i := range s.status.ResourceStatus.Manifests {
		if m := &s.status.ResourceStatus.Manifests[i]; m.ResourceMeta.Name == name {
			return &m.Conditions
		}
	}
	return &s.status.Conditions
}

func (s *ocmStage) show() []string {
	out := []string{showLine("work", s.status.Conditions, nil)}
	for _, m := range s.status.ResourceStatus.Manifests {
		out = append(out, showLine(fmt.Sprintf("%d %s", m.ResourceMeta.Ordinal, m.ResourceMeta.Name), m.Conditions, m.StatusFeedbacks.Values))
	}
	return out
}

type sigStage struct{ status v1alpha1.WorkStatus }

func (s *sigStage) report(r wire.WorkStatus, now metav1.Time) {
	s.status = MergeMulticluster(s.status, r, now)
}

func (s *sigStage) conditions(name string) *[]metav1.Condition {
	for i := range s.status.ManifestConditions {
		if m := &s.status.ManifestConditions[i]; m.Identifier.Name == name {
			return &m.Conditions
		}
	}
	return &s.status.Conditions
}

func (s *sigStage) show() []string {
	out := []string{showLine("work", s.status.Conditions, nil)}
	for _, m := range s.status.ManifestConditions {
		out = append(out, showLine(fmt.Sprintf("%d %s", m.Identifier.Ordinal, m.Identifier.Name), m.Conditions, nil))
	}
	return out
}
