// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spokelet/spokelet/hack/clusters"
)

// auditLog is a log that the test writes.
type auditLog struct {
	t       *testing.T
	cluster *clusters.Cluster
}

func newAuditLog(t *testing.T) *auditLog {
	t.Helper()
	return &auditLog{t, &clusters.Cluster{Name: "one", AuditLog: filepath.Join(t.TempDir(), "audit.log")}}
}

func (l *auditLog) write(text string) {
	l.t.Helper()
	file, err := os.OpenFile(l.cluster.AuditLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.WriteString(text); err != nil {
		l.t.Fatal(err)
	}
}

func (l *auditLog) expect(what string, requests []Request, err error, verbs ...string) {
	l.t.Helper()
	var got []string
	for _, r := range requests {
		got = append(got, r.Verb)
	}
	if err != nil || !slices.Equal(got, verbs) {
		l.t.Errorf("%s: %q, %v, want %q", what, got, err, verbs)
	}
}

func TestAnAuditLogIsReadOnceAndWhole(t *testing.T) {
	l := newAuditLog(t)
	l.write(`{"verb":"before"}` + "\n" + `{"verb":"be`)
	tail, err := TailAudit(l.cluster)
	if err != nil {
		t.Fatal(err)
	}
	next := func(what string, verbs ...string) {
		t.Helper()
		requests, err := tail.Next()
		l.expect(what, requests, err, verbs...)
	}
	next("a line that was begun before, and goes on")
	l.write(`gun"}` + "\n" + `{"verb":"first"}` + "\n" + `{"verb":"sec`)
	next("what was begun after the tail, as far as it is whole", "first")
	next("nothing new")
	l.write(`ond"}` + "\n\n" + `{"verb":"third"}` + "\n")
	next("the rest", "second", "third")
	next("the end")
}

func TestAnAuditLogIsReadFromAnOffset(t *testing.T) {
	l := newAuditLog(t)
	const first = `{"verb":"first"}` + "\n"
	l.write(first + `{"verb":"second"}` + "\n")
	for what, tc := range map[string]struct {
		offset int64
		verbs  []string
	}{
		"all":                    {0, []string{"first", "second"}},
		"from within a line":     {3, []string{"second"}},
		"from the end of a line": {int64(len(first)), []string{"second"}},
	} {
		requests, err := AuditSince(l.cluster, tc.offset)
		l.expect(what, requests, err, tc.verbs...)
	}
}
