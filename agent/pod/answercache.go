// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"sync"
	"time"
)

// answerTTL is how long an answer serves those who ask after: pods come in crowds,
// and what they ask is the same.
const answerTTL = time.Second

// maxAnswers bounds a memo.
const maxAnswers = 1000

// answerCache asks a question once for all who ask at the same time.
type answerCache[K comparable, V any] struct {
	mu      sync.Mutex
	answers map[K]*answer[V] // guarded by mu
}

type answer[V any] struct {
	mu    sync.Mutex // held while the question is asked
	value V
	err   error
	until time.Time
}

func newAnswerCache[K comparable, V any]() *answerCache[K, V] {
	return &answerCache[K, V]{answers: map[K]*answer[V]{}}
}

// get returns an answer that is no older than answerTTL, a failure too. That the
// asker ran out of time answers nothing.
func (m *answerCache[K, V]) get(key K, question func() (V, error)) (V, error) {
	a := m.getOrCreate(key)
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.until) {
		return a.value, a.err
	}
	a.value, a.err = question()
	if !errors.Is(a.err, context.Canceled) && !errors.Is(a.err, context.DeadlineExceeded) {
		a.until = time.Now().Add(answerTTL)
	}
	return a.value, a.err
}

func (m *answerCache[K, V]) getOrCreate(key K) *answer[V] {
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

// delete drops an answer that has proved wrong.
func (m *answerCache[K, V]) delete(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.answers, key)
}
