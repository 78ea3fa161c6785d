// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package ignorefields

import (
	"fmt"
	"strings"

	"github.com/itchyny/gojq"
)

// functions that an expression may call. None makes a value that is larger than
// its arguments, so that memory is bounded by the steps; none reads anything but
// the document.
var functions = func() map[string]bool {
	names := map[string]bool{}
	for name := range strings.FieldsSeq(`
		all any arrays booleans contains empty endswith false first getpath has
		in inside isempty iterables last length limit map not nth null
		nulls numbers objects range recurse scalars select startswith strings
		test tonumber true type values`) {
		names[name] = true
	}
	return names
}()

// NotPermittedError: an expression uses something that a path does not need, and
// whose cost the number of steps does not bound.
type NotPermittedError struct{ What string }

// Error names it.
func (e *NotPermittedError) Error() string {
	return e.What + " is not permitted in a path expression"
}

func refuse(what string) error { return &NotPermittedError{What: what} }

// permit walks a parsed expression.
func permit(q *gojq.Query) error {
	if q == nil {
		return nil
	}
	if len(q.Imports) > 0 || q.Meta != nil {
		return refuse("a module")
	}
	if len(q.FuncDefs) > 0 {
		return refuse("a function definition")
	}
	switch q.Op {
	case 0, gojq.OpPipe, gojq.OpComma, gojq.OpSub, gojq.OpMod, gojq.OpEq, gojq.OpNe, gojq.OpGt, gojq.OpLt, gojq.OpGe, gojq.OpLe, gojq.OpAnd, gojq.OpOr, gojq.OpAlt:
	case gojq.OpAdd, gojq.OpMul, gojq.OpDiv, gojq.OpAssign, gojq.OpModify, gojq.OpUpdateAdd, gojq.OpUpdateSub, gojq.OpUpdateMul, gojq.OpUpdateDiv, gojq.OpUpdateMod, gojq.OpUpdateAlt:
		return refuse("operator " + q.Op.String())
	default:
		return refuse("an operator")
	}
	if q.Func != "" { // the parser's short form of a call without arguments
		if err := permitFunc(&gojq.Func{Name: q.Func}); err != nil {
			return err
		}
	}
	return first(permit(q.Left), permit(q.Right), permitTerm(q.Term))
}

func permitTerm(t *gojq.Term) error {
	if t == nil {
		return nil
	}
	switch t.Type {
	case gojq.TermTypeReduce, gojq.TermTypeForeach, gojq.TermTypeLabel, gojq.TermTypeBreak, gojq.TermTypeFormat:
		return refuse(fmt.Sprintf("%q", abridge(t.String())))
	case gojq.TermTypeIdentity, gojq.TermTypeRecurse, gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeIndex,
		gojq.TermTypeFunc, gojq.TermTypeObject, gojq.TermTypeArray, gojq.TermTypeNumber, gojq.TermTypeUnary, gojq.TermTypeString,
		gojq.TermTypeIf, gojq.TermTypeTry, gojq.TermTypeQuery:
	default:
		return refuse("a term")
	}
	errs := []error{permitIndex(t.Index), permitFunc(t.Func), permitString(t.Str), permit(t.Query)}
	if t.Object != nil {
		for _, entry := range t.Object.KeyVals {
			errs = append(errs, permitString(entry.KeyString), permit(entry.KeyQuery), permit(entry.Val))
		}
	}
	if t.Array != nil {
		errs = append(errs, permit(t.Array.Query))
	}
	if t.Unary != nil {
		errs = append(errs, permitTerm(t.Unary.Term))
	}
	if t.If != nil {
		errs = append(errs, permit(t.If.Cond), permit(t.If.Then), permit(t.If.Else))
		for _, branch := range t.If.Elif {
			errs = append(errs, permit(branch.Cond), permit(branch.Then))
		}
	}
	if t.Try != nil {
		errs = append(errs, permit(t.Try.Body), permit(t.Try.Catch))
	}
	for _, suffix := range t.SuffixList {
		errs = append(errs, permitIndex(suffix.Index), permitBind(suffix.Bind))
	}
	return first(errs...)
}

func permitFunc(f *gojq.Func) error {
	if f == nil {
		return nil
	}
	if !functions[f.Name] && !strings.HasPrefix(f.Name, "$") || f.Name == "$ENV" {
		return refuse("function " + f.Name)
	}
	for _, arg := range f.Args {
		if err := permit(arg); err != nil {
			return err
		}
	}
	return nil
}

func permitIndex(i *gojq.Index) error {
	if i == nil {
		return nil
	}
	return first(permitString(i.Str), permit(i.Start), permit(i.End))
}

// permitString refuses interpolation: it joins strings.
func permitString(s *gojq.String) error {
	if s != nil && len(s.Queries) > 0 {
		return refuse("string interpolation")
	}
	return nil
}

func permitBind(b *gojq.Bind) error {
	if b == nil {
		return nil
	}
	for _, p := range b.Patterns {
		if err := permitPattern(p); err != nil {
			return err
		}
	}
	return permit(b.Body)
}

func permitPattern(p *gojq.Pattern) error {
	if p == nil {
		return nil
	}
	for _, child := range p.Array {
		if err := permitPattern(child); err != nil {
			return err
		}
	}
	for _, child := range p.Object {
		if err := first(permitString(child.KeyString), permit(child.KeyQuery), permitPattern(child.Val)); err != nil {
			return err
		}
	}
	return nil
}

// first returns the first error, or nil.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// abridge quotes no more of an expression than a message needs.
func abridge(text string) string {
	const enough = 64
	if len(text) <= enough {
		return text
	}
	return text[:enough] + "..."
}
