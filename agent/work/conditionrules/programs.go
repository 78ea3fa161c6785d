// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conditionrules

import (
	"container/list"
	"sync"

	"github.com/google/cel-go/cel"
)

// compiled is a program, or why there is none.
type compiled struct {
	expression string
	program    cel.Program
	err        error
}

// programs keeps those that were used last, by expression. They are bounded by
// number and by the length of their expressions, which tells what they take: some
// 200 bytes for each.
type programs struct {
	mu     sync.Mutex
	byText map[string]*list.Element // of compiled
	recent *list.List               // the last used in front
	length int                      // of all expressions
}

func newPrograms() *programs {
	return &programs{byText: map[string]*list.Element{}, recent: list.New()}
}

func (p *programs) get(expression string) (compiled, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.byText[expression]
	if !ok {
		return compiled{}, false
	}
	p.recent.MoveToFront(e)
	c, ok := e.Value.(compiled)
	return c, ok
}

func (p *programs) add(c compiled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, has := p.byText[c.expression]; has { // compiled by two at once
		return
	}
	p.byText[c.expression] = p.recent.PushFront(c)
	p.length += len(c.expression)
	for len(p.byText) > 1 && (len(p.byText) > maxPrograms || p.length > maxLength) {
		oldest, ok := p.recent.Remove(p.recent.Back()).(compiled)
		if ok {
			delete(p.byText, oldest.expression)
			p.length -= len(oldest.expression)
		}
	}
}
