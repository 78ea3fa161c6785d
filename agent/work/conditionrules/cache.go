// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conditionrules

import (
	"container/list"
	"sync"

	"github.com/google/cel-go/cel"
)

// cachedProgram is a program, or why there is none.
type cachedProgram struct {
	expression string
	Program    cel.Program
	err        error
}

// programCache keeps those that were used last, by expression. They are bounded by
// number and by the length of their expressions, which tells what they take: some
// 200 bytes for each.
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
	if _, has := p.byText[c.expression]; has { // compiled by two at once
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
