// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conditionrules

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

const (
	// maxResultSize bounds what one call of a function makes: bytes of a text, elements of
	// a list.
	maxResultSize = 1 << 20
	// maxComparedValues bounds the values that one call compares.
	maxComparedValues = 1 << 19
	// maxFieldValues bounds the values in a field of a message: it is made of copies, and
	// costs the same whatever it holds.
	maxFieldValues = 64
)

var errField = fmt.Errorf("field of a message has more than %d values", maxFieldValues)

// limitedFunctions are the functions whose result, or whose time, may be far larger than
// their cost says. size tells the result's before it is made, or the number of values
// to compare, or more, but counts no further than to exceed most; arguments that the
// function does not take have none.
var limitedFunctions = map[string]struct {
	size   func(args []ref.Val) int
	most   int
	refuse error
}{
	"replace":           {size: replaceSize, most: maxResultSize, refuse: fmt.Errorf("replace: result is larger than %d bytes", maxResultSize)},
	"join":              {size: joinSize, most: maxResultSize, refuse: fmt.Errorf("join: result is larger than %d bytes", maxResultSize)},
	"format":            {size: formatSize, most: maxResultSize, refuse: fmt.Errorf("format: result is larger than %d bytes", maxResultSize)},
	operators.Add:       {size: addSize, most: maxResultSize, refuse: fmt.Errorf("+: result is larger than %d bytes or elements", maxResultSize)},
	operators.Equals:    {size: comparedValues, most: maxComparedValues, refuse: fmt.Errorf("==: more than %d values to compare", maxComparedValues)},
	operators.NotEquals: {size: comparedValues, most: maxComparedValues, refuse: fmt.Errorf("!=: more than %d values to compare", maxComparedValues)},
	operators.In:        {size: inValues, most: maxComparedValues, refuse: fmt.Errorf("in: more than %d values to compare", maxComparedValues)},
	"indexOf":           {size: searchedValues, most: maxComparedValues, refuse: fmt.Errorf("indexOf: more than %d values to compare", maxComparedValues)},
	"lastIndexOf":       {size: searchedValues, most: maxComparedValues, refuse: fmt.Errorf("lastIndexOf: more than %d values to compare", maxComparedValues)},
}

// findOverloads returns the libraries' own of the bounded functions, by overload
// and, for calls whose overload only their arguments tell, by function.
func findOverloads(env *cel.Env) (map[string]*functions.Overload, error) {
	out := map[string]*functions.Overload{}
	declared := env.Functions()
	for name := range limitedFunctions {
		overloads, err := declared[name].Bindings()
		if err != nil {
			return nil, fmt.Errorf("failed to bind %s: %w", name, err)
		}
		for _, o := range overloads {
			out[o.Operator] = o
		}
	}
	// The interpreter has these itself, and no library.
	out[operators.Equals] = &functions.Overload{Operator: operators.Equals, Binary: types.Equal}
	out[operators.NotEquals] = &functions.Overload{Operator: operators.NotEquals, Binary: func(a, b ref.Val) ref.Val {
		return types.Bool(types.Equal(a, b) != types.True)
	}}
	return out, nil
}

// limitCalls replaces the calls of bounded functions by ones that ask for the size
// first. The arguments stay as they are: what counts the cost sees the same call.
func limitCalls(implementations map[string]*functions.Overload) interpreter.InterpretableDecoratorV2 {
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		if made, ok := i.(interpreter.InterpretableConstructor); ok {
			limitFields(made)
			return i, nil
		}
		call, ok := i.(interpreter.InterpretableCall)
		if !ok {
			return i, nil
		}
		limit, ok := limitedFunctions[call.Function()]
		if !ok {
			return i, nil
		}
		own, ok := implementations[call.OverloadID()]
		if !ok {
			if own, ok = implementations[call.Function()]; !ok {
				return nil, fmt.Errorf("no implementation of %s", call.Function())
			}
		}
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
			if limit.size(args) > limit.most {
				return types.WrapErr(limit.refuse)
			}
			return callOverload(call.Function(), own, args)
		}), nil
	}
}

// limitFields replaces the fields of what makes a message, in place: it cannot be
// made otherwise.
func limitFields(made interpreter.InterpretableConstructor) {
	if t := made.Type(); t == types.ListType || t == types.MapType {
		return
	}
	fields := made.InitVals()
	for i := range fields {
		fields[i] = limitedField{fields[i]}
	}
}

// limitedField is a value that a message holds.
type limitedField struct{ interpreter.InterpretableV2 }

func (f limitedField) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := f.InterpretableV2.Exec(frame)
	if countValues(v, maxFieldValues) > maxFieldValues {
		return types.WrapErr(errField)
	}
	return v
}

func (f limitedField) Eval(variables interpreter.Activation) ref.Val {
	return f.Exec(interpreter.AsFrame(variables))
}

// callOverload calls an implementation as the interpreter does.
func callOverload(name string, own *functions.Overload, args []ref.Val) ref.Val {
	switch {
	case own.OperandTrait != 0 && !args[0].Type().HasTrait(own.OperandTrait):
		return types.NewErr("no such overload: %s", name)
	case len(args) == 1 && own.Unary != nil:
		return own.Unary(args[0])
	case len(args) == 2 && own.Binary != nil:
		return own.Binary(args[0], args[1])
	case own.Function != nil:
		return own.Function(args...)
	}
	return types.NewErr("no such overload: %s", name)
}

func replaceSize(args []ref.Val) int {
	var texts [3]string
	for i := range texts {
		s, ok := args[i].(types.String)
		if !ok {
			return 0
		}
		texts[i] = string(s)
	}
	count := strings.Count(texts[0], texts[1])
	if len(args) > len(texts) {
		if n, ok := args[3].(types.Int); ok && n >= 0 && int64(n) < int64(count) {
			count = int(n)
		}
	}
	return len(texts[0]) + count*(len(texts[2])-len(texts[1]))
}

func joinSize(args []ref.Val) int {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return 0
	}
	separator := 0
	if len(args) > 1 {
		s, ok := args[1].(types.String)
		if !ok {
			return 0
		}
		separator = len(s)
	}
	length := lengthOf(list)
	if length > maxResultSize { // its texts may be empty, but to visit them takes time
		return length
	}
	n := 0
	for i := 0; i < length && n <= maxResultSize; i++ {
		if i > 0 {
			n += separator
		}
		n += textSize(list.Get(types.Int(i)), maxResultSize-n)
	}
	return n
}

func addSize(args []ref.Val) int {
	switch args[0].(type) {
	case types.String, types.Bytes:
		return byteLength(args[0]) + byteLength(args[1])
	case traits.Lister:
		if other, ok := args[1].(traits.Lister); ok {
			return lengthOf(args[0]) + lengthOf(other)
		}
	}
	return 0
}

// formatSize is an upper bound; of texts it is exact. The library tells what is wrong
// with a clause: those after it do not count.
func formatSize(args []ref.Val) int {
	text, isText := args[0].(types.String)
	list, isList := args[1].(traits.Lister)
	if !isText || !isList {
		return 0
	}
	n, rest := 0, string(text)
	for arg := 0; n <= maxResultSize; arg++ {
		before, after := cutClause(rest)
		n += before
		if after == "" || arg >= lengthOf(list) {
			break
		}
		digits := 0
		if after[0] == '.' {
			end := 1
			for end < len(after) && after[end] >= '0' && after[end] <= '9' {
				end++
			}
			var err error
			if digits, err = strconv.Atoi(after[1:end]); err != nil || end == len(after) {
				break
			}
			after = after[end:]
		}
		n += clauseSize(after[0], min(digits, maxResultSize+1), list.Get(types.Int(arg)), maxResultSize-n)
		rest = after[1:]
	}
	return n
}

// cutClause is the length of what is copied up to a clause, and what follows its sign.
func cutClause(text string) (before int, after string) {
	for {
		at := strings.IndexByte(text, '%')
		if at < 0 || at+1 >= len(text) {
			return before + len(text), ""
		}
		before += at
		if text[at+1] != '%' {
			return before, text[at+1:]
		}
		before++
		text = text[at+2:]
	}
}

// clauseSize bounds what one clause makes of a value.
func clauseSize(verb byte, digits int, v ref.Val, limit int) int {
	switch verb {
	case 'x', 'X':
		return max(2*byteLength(v), maxNumberSize)
	case 's':
		return textSize(v, limit)
	case 'f', 'e':
		return digits + maxDoubleSize
	default:
		return maxNumberSize
	}
}

const (
	// maxNumberSize is more than any number, time or duration takes, with its signs.
	maxNumberSize = 80
	// maxDoubleSize is more than a large one does, in full.
	maxDoubleSize = 512
	// maxQuotedByteSize is what a byte of a text may become in a list or map.
	maxQuotedByteSize = 4
)

// textSize bounds a value's text; it counts no further than to exceed limit. What is
// made of few lists that hold each other may be without end in effect.
func textSize(v ref.Val, limit int) int {
	switch v.(type) {
	case types.String, types.Bytes:
		return byteLength(v)
	}
	return nestedTextSize(v, limit)
}

func nestedTextSize(v ref.Val, limit int) int {
	n := 2
	switch value := v.(type) {
	case types.String, types.Bytes:
		return maxQuotedByteSize*byteLength(v) + len(`b"", `)
	case types.Double:
		if math.Abs(float64(value)) > 1e15 {
			return maxDoubleSize
		}
	case *types.Optional:
		if value.HasValue() {
			return maxNumberSize + nestedTextSize(value.GetValue(), limit)
		}
	case traits.Mapper:
		for it := value.Iterator(); n <= limit && it.HasNext() == types.True; {
			key := it.Next()
			n += nestedTextSize(key, limit-n) + nestedTextSize(value.Get(key), limit-n)
		}
		return n
	case traits.Lister:
		for i := 0; n <= limit && i < lengthOf(value); i++ {
			n += nestedTextSize(value.Get(types.Int(i)), limit-n)
		}
		return n
	}
	return maxNumberSize
}

// comparedValues is the number of values in the smaller of two lists or maps: no more are
// compared. Of few lists that hold each other there may be any number in effect.
func comparedValues(args []ref.Val) int {
	if !isAggregate(args[0]) || !isAggregate(args[1]) {
		return 0
	}
	n := countValues(args[0], maxComparedValues)
	return min(n, countValues(args[1], n))
}

func inValues(args []ref.Val) int { return searchedValues([]ref.Val{args[1], args[0]}) }

// searchedValues is what a list or map is compared with to find it in a list.
func searchedValues(args []ref.Val) int {
	list, ok := args[0].(traits.Lister)
	if !ok || !isAggregate(args[1]) {
		return 0
	}
	n, most := 0, countValues(args[1], maxComparedValues)
	for i := 0; n <= maxComparedValues && i < lengthOf(list); i++ {
		n += min(most, countValues(list.Get(types.Int(i)), min(most, maxComparedValues-n)))
	}
	return n
}

func isAggregate(v ref.Val) bool {
	switch value := v.(type) {
	case *types.Optional:
		return value.HasValue() && isAggregate(value.GetValue())
	case traits.Mapper, traits.Lister:
		return true
	}
	return false
}

// countValues counts a value and those in it, no further than to exceed limit. So many
// bytes of a text take as long to compare as another value.
func countValues(v ref.Val, limit int) int {
	const bytes = 64
	n := 1
	switch value := v.(type) {
	case types.String, types.Bytes:
		n += byteLength(v) / bytes
	case *types.Optional:
		if value.HasValue() {
			n += countValues(value.GetValue(), limit-n)
		}
	case traits.Mapper:
		for it := value.Iterator(); n <= limit && it.HasNext() == types.True; {
			key := it.Next()
			n += countValues(key, limit-n) + countValues(value.Get(key), limit-n)
		}
	case traits.Lister:
		for i := 0; n <= limit && i < lengthOf(value); i++ {
			n += countValues(value.Get(types.Int(i)), limit-n)
		}
	}
	return n
}

func byteLength(v ref.Val) int {
	switch value := v.(type) {
	case types.String:
		return len(value)
	case types.Bytes:
		return len(value)
	}
	return 0
}

func lengthOf(v any) int {
	if sizer, ok := v.(traits.Sizer); ok {
		if n, ok := sizer.Size().(types.Int); ok {
			return int(n)
		}
	}
	return 0
}

// costEstimator are Kubernetes' and, of the bounded functions, that of the text they make:
// many results may be kept at once. A value that is visited costs like a byte of a
// text.
type costEstimator struct{ library.CostEstimator }

func (c *costEstimator) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	limit, ok := limitedFunctions[function]
	if err, failed := result.(*types.Err); ok && failed && errors.Is(err, limit.refuse) {
		return traversalCost(limit.most) // to find that out took time
	}
	if traversesFirstArgument[function] && len(args) > 0 && countValues(args[0], maxComparedValues) > maxComparedValues {
		return traversalCost(maxComparedValues) // Kubernetes' visits them all to tell
	}
	cost := c.CostEstimator.CallCost(function, overload, args, result)
	switch {
	case function == "replace":
		*cost += *traversalCost(byteLength(result))
	case function == "format":
		cost = traversalCost(byteLength(args[0]) + byteLength(result))
	case function == operators.Add && overload == "" && byteLength(result) > 0:
		cost = traversalCost(byteLength(result)) // as of texts that are known to be
	case ok && limit.most == maxComparedValues:
		return comparisonCost(cost, function, limit.size(args), args)
	}
	return cost
}

// traversesFirstArgument are the functions whose cost is that of all values in their first argument.
var traversesFirstArgument = map[string]bool{"isSorted": true, "sum": true, "max": true, "min": true, "indexOf": true, "lastIndexOf": true}

// comparisonCost adds what n values that are compared cost to what a call does. nil is
// the interpreter's own.
func comparisonCost(cost *uint64, function string, n int, args []ref.Val) *uint64 {
	if n == 0 {
		return cost
	}
	sum := traversalCost(3 * n) // counted, compared, and counted for this
	switch {
	case cost != nil:
		*sum += *cost
	case function == operators.In:
		*sum += uint64(lengthOf(args[1])) //nolint:gosec // no list has fewer elements than none
	}
	return sum
}

func traversalCost(bytes int) *uint64 {
	cost := uint64(math.Ceil(float64(bytes) * common.StringTraversalCostFactor))
	return &cost
}
