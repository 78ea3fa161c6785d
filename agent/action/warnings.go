// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"slices"
	"strings"
	"sync"
)

// maxWarnings and maxWarning bound the warnings of an action: their number, and the bytes of
// each. A result has space for them.
const (
	maxWarnings = 16
	maxWarning  = 4 << 10
)

// warnings is a rest.WarningHandler that collects each warning once.
type warnings struct {
	mu   sync.Mutex
	list []string // guarded by mu
}

func (w *warnings) HandleWarningHeader(code int, _, text string) {
	if code == 299 { // the only one that Kubernetes sends
		w.add(text)
	}
}

func (w *warnings) add(texts ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range texts {
		text = strings.ToValidUTF8(text[:min(len(text), maxWarning)], "")
		if len(w.list) < maxWarnings && !slices.Contains(w.list, text) {
			w.list = append(w.list, text)
		}
	}
}

func (w *warnings) get() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list)
}
