// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package ignorefields

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	"github.com/spokelet/spokelet/agent/work/cputime"
)

const (
	// maxTime is OCM's limit, but of processor time.
	maxTime = time.Second
	// maxSteps bounds the steps of an expression, and with them what it allocates,
	// equally on every machine.
	maxSteps = 1_000_000
)

var (
	errSteps  = fmt.Errorf("expression took more than %d steps", maxSteps)
	errTime   = fmt.Errorf("expression took more than %s", maxTime)
	errResult = errors.New("expression leaves no object")
)

// query is a compiled del(<expression>).
type query struct {
	text string
	code *gojq.Code
}

func parseQuery(text string) (*query, error) {
	if len(text) > maxPath {
		return nil, errPathLength
	}
	// The expression is parsed alone, so that it cannot close del's parenthesis.
	parsed, err := gojq.Parse(text)
	if err != nil {
		return nil, err
	}
	if err := checkQuery(parsed); err != nil {
		return nil, err
	}
	code, err := gojq.Compile(&gojq.Query{Term: &gojq.Term{
		Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: "del", Args: []*gojq.Query{parsed}},
	}})
	if err != nil {
		return nil, err
	}
	return &query{text: text, code: code}, nil
}

func (q *query) remove(ctx context.Context, doc map[string]any) (map[string]any, error) {
	ctx, stop := cputime.Limit(ctx, maxTime, errTime)
	defer stop()
	run := &stepLimit{Context: ctx, left: maxSteps}
	out, ok := q.code.RunWithContext(run, toQuery(doc)).Next()
	if err, failed := out.(error); failed {
		return nil, queryError(q.text, run.cause(err))
	}
	object, isObject := fromQuery(out).(map[string]any)
	if !ok || !isObject {
		return nil, queryError(q.text, errResult)
	}
	return object, nil
}

// stepLimit is a context that also ends after a number of steps: gojq calls Done once in
// each. It serves one run in one goroutine.
type stepLimit struct {
	context.Context
	left int
}

var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (l *stepLimit) Done() <-chan struct{} {
	if l.left <= 0 {
		return closed
	}
	l.left--
	return l.Context.Done()
}

func (l *stepLimit) Err() error {
	if l.left <= 0 {
		return errSteps
	}
	return l.Context.Err()
}

// cause returns why a run ended. gojq quotes values of the document, which may be a
// Secret: only what precedes them is repeated.
func (l *stepLimit) cause(err error) error {
	switch {
	case l.left <= 0:
		return errSteps
	case l.Context.Err() != nil:
		return context.Cause(l.Context)
	}
	text, _, _ := strings.Cut(err.Error(), " (")
	text, _, _ = strings.Cut(text, `"`)
	return errors.New(strings.TrimSpace(text))
}

// toQuery copies a value, with the types of numbers that gojq accepts.
func toQuery(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, child := range v {
			out[key] = toQuery(child)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, child := range v {
			out[i] = toQuery(child)
		}
		return out
	case int64:
		return int(v)
	case json.Number:
		return number(v)
	default:
		return v
	}
}

func number(n json.Number) any {
	if i, err := n.Int64(); err == nil {
		return int(i)
	}
	if i, ok := new(big.Int).SetString(n.String(), 10); ok {
		return i
	}
	f, err := n.Float64()
	if err != nil {
		return n.String() // beyond any float; no API server takes it either
	}
	return f
}

// fromQuery converts the numbers of gojq back, in place.
func fromQuery(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			v[key] = fromQuery(child)
		}
		return v
	case []any:
		for i, child := range v {
			v[i] = fromQuery(child)
		}
		return v
	case int:
		return int64(v)
	case *big.Int:
		return json.Number(v.String())
	default:
		return v
	}
}
