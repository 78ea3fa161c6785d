// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

// render writes a status in the suite's notation, in the order of the status, all
// but the times:
//
//	work
//	Applied=True AppliedManifestWorkComplete @1: Apply manifest work complete
//	0 v1 ConfigMap configmaps namespace/name
//	Available=True ResourceAvailable: Resource is available
//	value = Integer 3
//
// "@1" is the observedGeneration, left out if there is none; so is a message. A
// manifest's line is ordinal, group and version, kind, resource, namespace and
// name, "-" for what is empty.
func render(s workv1.ManifestWorkStatus) []string {
	lines := append([]string{"work"}, renderConditions(s.Conditions)...)
	for _, m := range s.ResourceStatus.Manifests {
		lines = append(lines, renderMeta(m.ResourceMeta))
		lines = append(lines, renderConditions(m.Conditions)...)
		for _, v := range m.StatusFeedbacks.Values {
			lines = append(lines, v.Name+" = "+renderValue(v.Value))
		}
	}
	return lines
}

func renderConditions(conditions []metav1.Condition) []string {
	var lines []string
	for _, c := range conditions {
		line := fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason)
		if c.ObservedGeneration != 0 {
			line += fmt.Sprintf(" @%d", c.ObservedGeneration)
		}
		if c.Message != "" {
			line += ": " + c.Message
		}
		lines = append(lines, line)
	}
	return lines
}

func renderMeta(m workv1.ManifestResourceMeta) string {
	version := m.Version
	if m.Group != "" {
		version = m.Group + "/" + m.Version
	}
	words := []string{version, m.Kind, m.Resource, m.Namespace, m.Name}
	for i, word := range words {
		if word == "" {
			words[i] = "-"
		}
	}
	return fmt.Sprintf("%d %s/%s", m.Ordinal, strings.Join(words[:4], " "), words[4])
}

func renderValue(v workv1.FieldValue) string {
	switch {
	case v.Integer != nil:
		return fmt.Sprintf("%s %d", v.Type, *v.Integer)
	case v.String != nil:
		return fmt.Sprintf("%s %s", v.Type, *v.String)
	case v.Boolean != nil:
		return fmt.Sprintf("%s %t", v.Type, *v.Boolean)
	case v.JsonRaw != nil:
		return fmt.Sprintf("%s %s", v.Type, *v.JsonRaw)
	}
	return string(v.Type) + " without a value"
}

// short forms of what most statuses are made of; N is a generation.
var short = strings.NewReplacer(
	"+work@N", "Applied=True AppliedManifestWorkComplete @N: Apply manifest work complete\n"+
		"Available=True ResourcesAvailable @N: All resources are available",
	"+failed@N", "Applied=False AppliedManifestWorkFailed @N: Failed to apply manifest work",
	"+all@N", "Available=True ResourcesAvailable @N: All resources are available",
	"+manifest@N", "Applied=True AppliedManifestComplete @N: Apply manifest complete\n"+
		"Available=True ResourceAvailable: Resource is available\n"+
		"StatusFeedbackSynced=True NoStatusFeedbackSynced",
	// In the order that a second generation leaves.
	"+again@N", "Available=True ResourceAvailable: Resource is available\n"+
		"StatusFeedbackSynced=True NoStatusFeedbackSynced\n"+
		"Applied=True AppliedManifestComplete @N: Apply manifest complete",
	"+applied@N", "Applied=True AppliedManifestComplete @N: Apply manifest complete",
	"+there", "Available=True ResourceAvailable: Resource is available",
	"+missing", "Available=False ResourceNotAvailable: Resource is not available",
	"+silent", "StatusFeedbackSynced=True NoStatusFeedbackSynced",
	"+heard", "StatusFeedbackSynced=True StatusFeedbackSynced",
)

var generation = regexp.MustCompile(`@(\d+)$`)

// expand makes the lines of a notation: one per line, short forms written out,
// indentation and empty lines dropped. In what is wanted, "*" stands for any text,
// and a line that begins with "?" need not be there.
func expand(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		optional := strings.HasPrefix(line, "?")
		line = strings.TrimPrefix(line, "?")
		if line == "" {
			continue
		}
		for long := range strings.SplitSeq(writeOut(line), "\n") {
			if optional {
				long = "?" + long
			}
			lines = append(lines, long)
		}
	}
	return lines
}

func writeOut(line string) string {
	if !strings.HasPrefix(line, "+") {
		return line
	}
	at := generation.FindString(line)
	if at == "" {
		return short.Replace(line)
	}
	return strings.ReplaceAll(short.Replace(strings.TrimSuffix(line, at)+"@N"), "@N", at)
}

// differ tells how a status differs from what is wanted.
func differ(want, got []string) error {
	rest := got
	for _, w := range want {
		optional := strings.HasPrefix(w, "?")
		if len(rest) > 0 && like(strings.TrimPrefix(w, "?"), strings.TrimSpace(rest[0])) {
			rest = rest[1:]
		} else if !optional {
			return fmt.Errorf("%q is not next, but %q, in:\n%s", w, first(rest), strings.Join(got, "\n"))
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("%q is too much, in:\n%s", rest[0], strings.Join(got, "\n"))
	}
	return nil
}

// like tells whether text matches a pattern, in which "*" stands for any text.
func like(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile(`^(?s:` + strings.Join(parts, ".*") + `)$`).MatchString(text)
}

func first(lines []string) string {
	if len(lines) == 0 {
		return "nothing"
	}
	return lines[0]
}
