// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conditionrules

import (
	"container/list"
	"sync"

	"github.com/google/cel-go/cel"
)

// cachedProgram is a program, or the error of its compilation.
type cachedProgram struct {
	expression string
	Program    cel.Program
	err        error
}

// programCache has the programs that were used last, by expression. It is bounded by their
// number and by the length of their expressions: a program takes some 200 bytes for each
// byte.
type programCache struct {
	mu     sync.Mutex
	byText map[string]*list.Element // of compiled
	order  *list.List               // the last used in front
	length int                      // of all expressions
}

func newProgramCache() *programCache {
	return &programCache{byText: map[string]*list.Element{}, order: list.New()}
}

func (p *programCache) get(expression string) (cachedProgram, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.byText[expression]
	if !ok {
		return cachedProgram{}, false
	}
	p.order.MoveToFront(e)
	c, ok := e.Value.(cachedProgram)
	return c, ok
}

func (p *programCache) add(c cachedProgram) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, has := p.byText[c.expression]; has { // compiled by two goroutines
		return
	}
	p.byText[c.expression] = p.order.PushFront(c)
	p.length += len(c.expression)
	for len(p.byText) > 1 && (len(p.byText) > maxPrograms || p.length > maxCacheLength) {
		oldest, ok := p.order.Remove(p.order.Back()).(cachedProgram)
		if ok {
			delete(p.byText, oldest.expression)
			p.length -= len(oldest.expression)
		}
	}
}
