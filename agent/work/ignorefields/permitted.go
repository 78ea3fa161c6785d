// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package ignorefields

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/itchyny/gojq"
)

// permittedFunctions may be called by an expression. None makes a value that is larger than
// its arguments, so that the steps bound the memory; none reads anything but
// the document.
var permittedFunctions = func() map[string]bool {
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

// NotPermittedError is returned for an expression with something that a path does not need,
// and whose cost the number of steps does not bound.
type NotPermittedError struct{ What string }

// Error names what is not permitted.
func (e *NotPermittedError) Error() string {
	return e.What + " is not permitted in a path expression"
}

func notPermitted(what string) error { return &NotPermittedError{What: what} }

// checkQuery returns an error if an expression, or one in it, is not permitted.
func checkQuery(q *gojq.Query) error {
	if q == nil {
		return nil
	}
	if len(q.Imports) > 0 || q.Meta != nil {
		return notPermitted("a module")
	}
	if len(q.FuncDefs) > 0 {
		return notPermitted("a function definition")
	}
	switch q.Op {
	case 0, gojq.OpPipe, gojq.OpComma, gojq.OpSub, gojq.OpMod, gojq.OpEq, gojq.OpNe, gojq.OpGt, gojq.OpLt, gojq.OpGe, gojq.OpLe, gojq.OpAnd, gojq.OpOr, gojq.OpAlt:
	case gojq.OpAdd, gojq.OpMul, gojq.OpDiv, gojq.OpAssign, gojq.OpModify, gojq.OpUpdateAdd, gojq.OpUpdateSub, gojq.OpUpdateMul, gojq.OpUpdateDiv, gojq.OpUpdateMod, gojq.OpUpdateAlt:
		return notPermitted("operator " + q.Op.String())
	default:
		return notPermitted("an operator")
	}
	if q.Func != "" { // the parser's short form of a call without arguments
		if err := checkFunc(&gojq.Func{Name: q.Func}); err != nil {
			return err
		}
	}
	return cmp.Or(checkQuery(q.Left), checkQuery(q.Right), checkTerm(q.Term))
}

func checkTerm(t *gojq.Term) error {
	if t == nil {
		return nil
	}
	switch t.Type {
	case gojq.TermTypeReduce, gojq.TermTypeForeach, gojq.TermTypeLabel, gojq.TermTypeBreak, gojq.TermTypeFormat:
		return notPermitted(fmt.Sprintf("%q", truncate(t.String())))
	case gojq.TermTypeIdentity, gojq.TermTypeRecurse, gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeIndex,
		gojq.TermTypeFunc, gojq.TermTypeObject, gojq.TermTypeArray, gojq.TermTypeNumber, gojq.TermTypeUnary, gojq.TermTypeString,
		gojq.TermTypeIf, gojq.TermTypeTry, gojq.TermTypeQuery:
	default:
		return notPermitted("a term")
	}
	errs := []error{checkIndex(t.Index), checkFunc(t.Func), checkString(t.Str), checkQuery(t.Query)}
	if t.Object != nil {
		for _, entry := range t.Object.KeyVals {
			errs = append(errs, checkString(entry.KeyString), checkQuery(entry.KeyQuery), checkQuery(entry.Val))
		}
	}
	if t.Array != nil {
		errs = append(errs, checkQuery(t.Array.Query))
	}
	if t.Unary != nil {
		errs = append(errs, checkTerm(t.Unary.Term))
	}
	if t.If != nil {
		errs = append(errs, checkQuery(t.If.Cond), checkQuery(t.If.Then), checkQuery(t.If.Else))
		for _, branch := range t.If.Elif {
			errs = append(errs, checkQuery(branch.Cond), checkQuery(branch.Then))
		}
	}
	if t.Try != nil {
		errs = append(errs, checkQuery(t.Try.Body), checkQuery(t.Try.Catch))
	}
	for _, suffix := range t.SuffixList {
		errs = append(errs, checkIndex(suffix.Index), checkBind(suffix.Bind))
	}
	return cmp.Or(errs...)
}

func checkFunc(f *gojq.Func) error {
	if f == nil {
		return nil
	}
	if !permittedFunctions[f.Name] && !strings.HasPrefix(f.Name, "$") || f.Name == "$ENV" {
		return notPermitted("function " + f.Name)
	}
	for _, arg := range f.Args {
		if err := checkQuery(arg); err != nil {
			return err
		}
	}
	return nil
}

func checkIndex(i *gojq.Index) error {
	if i == nil {
		return nil
	}
	return cmp.Or(checkString(i.Str), checkQuery(i.Start), checkQuery(i.End))
}

// checkString refuses interpolation, which joins strings.
func checkString(s *gojq.String) error {
	if s != nil && len(s.Queries) > 0 {
		return notPermitted("string interpolation")
	}
	return nil
}

func checkBind(b *gojq.Bind) error {
	if b == nil {
		return nil
	}
	for _, p := range b.Patterns {
		if err := checkPattern(p); err != nil {
			return err
		}
	}
	return checkQuery(b.Body)
}

func checkPattern(p *gojq.Pattern) error {
	if p == nil {
		return nil
	}
	for _, child := range p.Array {
		if err := checkPattern(child); err != nil {
			return err
		}
	}
	for _, child := range p.Object {
		if err := cmp.Or(checkString(child.KeyString), checkQuery(child.KeyQuery), checkPattern(child.Val)); err != nil {
			return err
		}
	}
	return nil
}

// truncate shortens an expression that an error quotes.
func truncate(text string) string {
	const limit = 64
	if len(text) <= limit {
		return text
	}
	return text[:limit] + "..."
}
