// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"sync"
	"time"
)

// answerLife is how long an answer serves those who ask after: pods come in crowds,
// and what they ask is the same.
const answerLife = time.Second

// maxAnswers bounds a memo.
const maxAnswers = 1000

// memo asks a question once for all who ask at the same time.
type memo[K comparable, V any] struct {
	mu      sync.Mutex
	answers map[K]*answer[V] // guarded by mu
}

type answer[V any] struct {
	mu    sync.Mutex // held while the question is asked
	value V
	err   error
	until time.Time
}

func newMemo[K comparable, V any]() *memo[K, V] {
	return &memo[K, V]{answers: map[K]*answer[V]{}}
}

// ask returns an answer that is no older than answerLife, a failure too. That the
// asker ran out of time answers nothing.
func (m *memo[K, V]) ask(key K, question func() (V, error)) (V, error) {
	a := m.answer(key)
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.until) {
		return a.value, a.err
	}
	a.value, a.err = question()
	if !errors.Is(a.err, context.Canceled) && !errors.Is(a.err, context.DeadlineExceeded) {
		a.until = time.Now().Add(answerLife)
	}
	return a.value, a.err
}

func (m *memo[K, V]) answer(key K) *answer[V] {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.answers[key]
	if ok {
		return a
	}
	if len(m.answers) >= maxAnswers {
		clear(m.answers)
	}
	a = &answer[V]{}
	m.answers[key] = a
	return a
}

// forget drops an answer that has proved wrong.
func (m *memo[K, V]) forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.answers, key)
}
