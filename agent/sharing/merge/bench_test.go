// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// large returns a content of about 1 KiB.
func large(b *testing.B) map[string]any {
	b.Helper()
	labels, limits, ports := map[string]any{}, map[string]any{}, []any{}
	for i := range 8 {
		labels[fmt.Sprintf("example.com/label-%d", i)] = fmt.Sprintf("value-%d", i)
		limits[fmt.Sprintf("example.com/limit-%d", i)] = fmt.Sprintf("%d000Mi", i)
		ports = append(ports, map[string]any{"name": fmt.Sprintf("port-%d", i), "port": int64(8000 + i), "tags": []any{"a", "b"}})
	}
	made := map[string]any{
		"metadata": map[string]any{"labels": labels},
		"spec":     map[string]any{"limits": limits, "ports": ports, "size": int64(1)},
		"status":   map[string]any{"phase": "Up", "count": int64(1)},
	}
	if encoded, err := json.Marshal(made); err != nil || len(encoded) < 900 || len(encoded) > 1200 {
		b.Fatalf("%d bytes, %v", len(encoded), err)
	}
	return made
}

func changedPort(of map[string]any, port int, number int64) map[string]any {
	next := runtime.DeepCopyJSON(of)
	next["spec"].(map[string]any)["ports"].([]any)[port].(map[string]any)["port"] = number
	return next
}

func BenchmarkMerge(b *testing.B) {
	s, base := testSchema(b), large(b)
	pruned := runtime.DeepCopyJSON(base)
	delete(pruned, "status")
	copyOf := runtime.DeepCopyJSON
	for name, c := range map[string]struct{ base, now States }{
		"unchanged":        {States{base, copyOf(base)}, States{copyOf(base), copyOf(base)}},
		"fast-forward":     {States{base, copyOf(base)}, States{copyOf(base), changedPort(base, 1, 1)}},
		"both changed":     {States{base, copyOf(base)}, States{changedPort(base, 2, 2), changedPort(base, 1, 1)}},
		"dropped a status": {States{base, pruned}, States{copyOf(base), changedPort(pruned, 1, 1)}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Merge(c.base, c.now, Hub); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPrune(b *testing.B) {
	s, base := testSchema(b), large(b)
	got := runtime.DeepCopyJSON(base)
	b.ReportAllocs()
	for b.Loop() {
		s.Prune(base, got)
	}
}
