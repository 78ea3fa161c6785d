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
	// maxResultSize bounds the result of one call: bytes of a string, elements of a list.
	maxResultSize = 1 << 20
	// maxComparedValues bounds the values that one call compares.
	maxComparedValues = 1 << 19
	// maxFieldValues bounds the values in a field of a message: they are copied, at a cost that
	// does not depend on their number.
	maxFieldValues = 64
)

var errField = fmt.Errorf("field of a message has more than %d values", maxFieldValues)

// limitedFunctions are the functions whose result or time may be far larger than their cost.
// size returns an upper bound of the result's size, or of the number of values to compare,
// before the call; it stops counting once most is exceeded. Invalid arguments have size zero.
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

// findOverloads returns the libraries' implementations of the limited functions, by overload
// and, for calls whose overload depends on the arguments, by function.
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
	// No library has these, but the interpreter.
	out[operators.Equals] = &functions.Overload{Operator: operators.Equals, Binary: types.Equal}
	out[operators.NotEquals] = &functions.Overload{Operator: operators.NotEquals, Binary: func(a, b ref.Val) ref.Val {
		return types.Bool(types.Equal(a, b) != types.True)
	}}
	return out, nil
}

// limitCalls replaces the calls of limited functions by calls that check the size first. The
// arguments stay the same, so that the cost is counted as before.
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

// limitFields replaces the fields of a message's constructor, in place: it cannot be
// created otherwise.
func limitFields(made interpreter.InterpretableConstructor) {
	if t := made.Type(); t == types.ListType || t == types.MapType {
		return
	}
	fields := made.InitVals()
	for i := range fields {
		fields[i] = limitedField{fields[i]}
	}
}

// limitedField is a field of a message whose size is checked.
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

// callOverload calls an overload as the interpreter does.
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
	if length > maxResultSize { // its strings may be empty, but to visit them takes time
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

// formatSize returns an upper bound, which is exact for strings. Clauses after an invalid one do not
// count: the library returns an error.
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

// cutClause returns the length of the text before a clause, and what follows its percent sign.
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

// clauseSize bounds the text of a value in a clause.
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
	// maxNumberSize is more than any number, time or duration takes.
	maxNumberSize = 80
	// maxDoubleSize is more than a large double takes without exponent.
	maxDoubleSize = 512
	// maxQuotedByteSize is the size of an escaped byte of a string in a list or map.
	maxQuotedByteSize = 4
)

// textSize bounds the text of a value. It stops counting once limit is exceeded: a few lists that
// share each other may have practically endless texts.
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

// comparedValues returns the number of values in the smaller of two lists or maps: no more are
// compared. A few lists that share each other may have practically any number.
func comparedValues(args []ref.Val) int {
	if !isAggregate(args[0]) || !isAggregate(args[1]) {
		return 0
	}
	n := countValues(args[0], maxComparedValues)
	return min(n, countValues(args[1], n))
}

func inValues(args []ref.Val) int { return searchedValues([]ref.Val{args[1], args[0]}) }

// searchedValues returns the number of values that are compared to find a list or map in a list.
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

// countValues counts a value and those in it. It stops once limit is exceeded. A string counts once
// for so many bytes, which take as long to compare as another value.
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

// costEstimator adds the size of the results of limited functions to Kubernetes' costs, because many
// results may be kept at once. A visited value costs as much as a byte of a string.
type costEstimator struct{ library.CostEstimator }

func (c *costEstimator) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	limit, ok := limitedFunctions[function]
	if err, failed := result.(*types.Err); ok && failed && errors.Is(err, limit.refuse) {
		return traversalCost(limit.most) // to check that took time
	}
	if traversesFirstArgument[function] && len(args) > 0 && countValues(args[0], maxComparedValues) > maxComparedValues {
		return traversalCost(maxComparedValues) // Kubernetes' estimator would visit them all
	}
	cost := c.CostEstimator.CallCost(function, overload, args, result)
	switch {
	case function == "replace":
		*cost += *traversalCost(byteLength(result))
	case function == "format":
		cost = traversalCost(byteLength(args[0]) + byteLength(result))
	case function == operators.Add && overload == "" && byteLength(result) > 0:
		cost = traversalCost(byteLength(result)) // as for arguments whose type is known to be string
	case ok && limit.most == maxComparedValues:
		return comparisonCost(cost, function, limit.size(args), args)
	}
	return cost
}

// traversesFirstArgument has the functions whose cost depends on all values in their first argument.
var traversesFirstArgument = map[string]bool{"isSorted": true, "sum": true, "max": true, "min": true, "indexOf": true, "lastIndexOf": true}

// comparisonCost adds the cost of n compared values to that of a call. A nil cost is the
// interpreter's default.
func comparisonCost(cost *uint64, function string, n int, args []ref.Val) *uint64 {
	if n == 0 {
		return cost
	}
	sum := traversalCost(3 * n) // counted, compared, and counted again here
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
