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
	// maxResult bounds what one call of a function makes: bytes of a text, elements of
	// a list.
	maxResult = 1 << 20
	// maxCompared bounds the values that one call compares.
	maxCompared = 1 << 19
	// maxField bounds the values in a field of a message: it is made of copies, and
	// costs the same whatever it holds.
	maxField = 64
)

var errField = fmt.Errorf("field of a message has more than %d values", maxField)

// bounded are the functions whose result, or whose time, may be far larger than
// their cost says. size tells the result's before it is made, or the number of values
// to compare, or more, but counts no further than to exceed most; arguments that the
// function does not take have none.
var bounded = map[string]struct {
	size   func(args []ref.Val) int
	most   int
	refuse error
}{
	"replace":           {size: replaced, most: maxResult, refuse: fmt.Errorf("replace: result is larger than %d bytes", maxResult)},
	"join":              {size: joined, most: maxResult, refuse: fmt.Errorf("join: result is larger than %d bytes", maxResult)},
	"format":            {size: formatted, most: maxResult, refuse: fmt.Errorf("format: result is larger than %d bytes", maxResult)},
	operators.Add:       {size: added, most: maxResult, refuse: fmt.Errorf("+: result is larger than %d bytes or elements", maxResult)},
	operators.Equals:    {size: compared, most: maxCompared, refuse: fmt.Errorf("==: more than %d values to compare", maxCompared)},
	operators.NotEquals: {size: compared, most: maxCompared, refuse: fmt.Errorf("!=: more than %d values to compare", maxCompared)},
	operators.In:        {size: contained, most: maxCompared, refuse: fmt.Errorf("in: more than %d values to compare", maxCompared)},
	"indexOf":           {size: found, most: maxCompared, refuse: fmt.Errorf("indexOf: more than %d values to compare", maxCompared)},
	"lastIndexOf":       {size: found, most: maxCompared, refuse: fmt.Errorf("lastIndexOf: more than %d values to compare", maxCompared)},
}

// implementations returns the libraries' own of the bounded functions, by overload
// and, for calls whose overload only their arguments tell, by function.
func implementations(env *cel.Env) (map[string]*functions.Overload, error) {
	out := map[string]*functions.Overload{}
	declared := env.Functions()
	for name := range bounded {
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

// bound replaces the calls of bounded functions by ones that ask for the size
// first. The arguments stay as they are: what counts the cost sees the same call.
func bound(implementations map[string]*functions.Overload) interpreter.InterpretableDecoratorV2 {
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		if made, ok := i.(interpreter.InterpretableConstructor); ok {
			boundFields(made)
			return i, nil
		}
		call, ok := i.(interpreter.InterpretableCall)
		if !ok {
			return i, nil
		}
		limit, ok := bounded[call.Function()]
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
			return invoke(call.Function(), own, args)
		}), nil
	}
}

// boundFields replaces the fields of what makes a message, in place: it cannot be
// made otherwise.
func boundFields(made interpreter.InterpretableConstructor) {
	if t := made.Type(); t == types.ListType || t == types.MapType {
		return
	}
	fields := made.InitVals()
	for i := range fields {
		fields[i] = field{fields[i]}
	}
}

// field is a value that a message holds.
type field struct{ interpreter.InterpretableV2 }

// Exec implements [interpreter.InterpretableV2].
func (f field) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := f.InterpretableV2.Exec(frame)
	if values(v, maxField) > maxField {
		return types.WrapErr(errField)
	}
	return v
}

// Eval implements [interpreter.Interpretable].
func (f field) Eval(variables interpreter.Activation) ref.Val {
	return f.Exec(interpreter.AsFrame(variables))
}

// invoke calls an implementation as the interpreter does.
func invoke(name string, own *functions.Overload, args []ref.Val) ref.Val {
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

func replaced(args []ref.Val) int {
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

func joined(args []ref.Val) int {
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
	length := size(list)
	if length > maxResult { // its texts may be empty, but to visit them takes time
		return length
	}
	n := 0
	for i := 0; i < length && n <= maxResult; i++ {
		if i > 0 {
			n += separator
		}
		n += printed(list.Get(types.Int(i)), maxResult-n)
	}
	return n
}

func added(args []ref.Val) int {
	switch args[0].(type) {
	case types.String, types.Bytes:
		return bytesOf(args[0]) + bytesOf(args[1])
	case traits.Lister:
		if other, ok := args[1].(traits.Lister); ok {
			return size(args[0]) + size(other)
		}
	}
	return 0
}

// formatted is an upper bound; of texts it is exact. The library tells what is wrong
// with a clause: those after it do not count.
func formatted(args []ref.Val) int {
	text, isText := args[0].(types.String)
	list, isList := args[1].(traits.Lister)
	if !isText || !isList {
		return 0
	}
	n, rest := 0, string(text)
	for arg := 0; n <= maxResult; arg++ {
		before, after := clause(rest)
		n += before
		if after == "" || arg >= size(list) {
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
		n += interpolated(after[0], min(digits, maxResult+1), list.Get(types.Int(arg)), maxResult-n)
		rest = after[1:]
	}
	return n
}

// clause is the length of what is copied up to a clause, and what follows its sign.
func clause(text string) (before int, after string) {
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

// interpolated bounds what one clause makes of a value.
func interpolated(verb byte, digits int, v ref.Val, limit int) int {
	switch verb {
	case 'x', 'X':
		return max(2*bytesOf(v), number)
	case 's':
		return printed(v, limit)
	case 'f', 'e':
		return digits + double
	default:
		return number
	}
}

const (
	// number is more than any number, time or duration takes, with its signs.
	number = 80
	// double is more than a large one does, in full.
	double = 512
	// quoting is what a byte of a text may become in a list or map.
	quoting = 4
)

// printed bounds a value's text; it counts no further than to exceed limit. What is
// made of few lists that hold each other may be without end in effect.
func printed(v ref.Val, limit int) int {
	switch v.(type) {
	case types.String, types.Bytes:
		return bytesOf(v)
	}
	return nested(v, limit)
}

func nested(v ref.Val, limit int) int {
	n := 2
	switch value := v.(type) {
	case types.String, types.Bytes:
		return quoting*bytesOf(v) + len(`b"", `)
	case types.Double:
		if math.Abs(float64(value)) > 1e15 {
			return double
		}
	case *types.Optional:
		if value.HasValue() {
			return number + nested(value.GetValue(), limit)
		}
	case traits.Mapper:
		for it := value.Iterator(); n <= limit && it.HasNext() == types.True; {
			key := it.Next()
			n += nested(key, limit-n) + nested(value.Get(key), limit-n)
		}
		return n
	case traits.Lister:
		for i := 0; n <= limit && i < size(value); i++ {
			n += nested(value.Get(types.Int(i)), limit-n)
		}
		return n
	}
	return number
}

// compared is the number of values in the smaller of two lists or maps: no more are
// compared. Of few lists that hold each other there may be any number in effect.
func compared(args []ref.Val) int {
	if !aggregate(args[0]) || !aggregate(args[1]) {
		return 0
	}
	n := values(args[0], maxCompared)
	return min(n, values(args[1], n))
}

func contained(args []ref.Val) int { return found([]ref.Val{args[1], args[0]}) }

// found is what a list or map is compared with to find it in a list.
func found(args []ref.Val) int {
	list, ok := args[0].(traits.Lister)
	if !ok || !aggregate(args[1]) {
		return 0
	}
	n, most := 0, values(args[1], maxCompared)
	for i := 0; n <= maxCompared && i < size(list); i++ {
		n += min(most, values(list.Get(types.Int(i)), min(most, maxCompared-n)))
	}
	return n
}

func aggregate(v ref.Val) bool {
	switch value := v.(type) {
	case *types.Optional:
		return value.HasValue() && aggregate(value.GetValue())
	case traits.Mapper, traits.Lister:
		return true
	}
	return false
}

// values counts a value and those in it, no further than to exceed limit. So many
// bytes of a text take as long to compare as another value.
func values(v ref.Val, limit int) int {
	const bytes = 64
	n := 1
	switch value := v.(type) {
	case types.String, types.Bytes:
		n += bytesOf(v) / bytes
	case *types.Optional:
		if value.HasValue() {
			n += values(value.GetValue(), limit-n)
		}
	case traits.Mapper:
		for it := value.Iterator(); n <= limit && it.HasNext() == types.True; {
			key := it.Next()
			n += values(key, limit-n) + values(value.Get(key), limit-n)
		}
	case traits.Lister:
		for i := 0; n <= limit && i < size(value); i++ {
			n += values(value.Get(types.Int(i)), limit-n)
		}
	}
	return n
}

func bytesOf(v ref.Val) int {
	switch value := v.(type) {
	case types.String:
		return len(value)
	case types.Bytes:
		return len(value)
	}
	return 0
}

func size(v any) int {
	if sizer, ok := v.(traits.Sizer); ok {
		if n, ok := sizer.Size().(types.Int); ok {
			return int(n)
		}
	}
	return 0
}

// costs are Kubernetes' and, of the bounded functions, that of the text they make:
// many results may be kept at once. A value that is visited costs like a byte of a
// text.
type costs struct{ library.CostEstimator }

// CallCost implements [interpreter.ActualCostEstimator].
func (c *costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	limit, ok := bounded[function]
	if err, failed := result.(*types.Err); ok && failed && errors.Is(err, limit.refuse) {
		return traversal(limit.most) // to find that out took time
	}
	if visited[function] && len(args) > 0 && values(args[0], maxCompared) > maxCompared {
		return traversal(maxCompared) // Kubernetes' visits them all to tell
	}
	cost := c.CostEstimator.CallCost(function, overload, args, result)
	switch {
	case function == "replace":
		*cost += *traversal(bytesOf(result))
	case function == "format":
		cost = traversal(bytesOf(args[0]) + bytesOf(result))
	case function == operators.Add && overload == "" && bytesOf(result) > 0:
		cost = traversal(bytesOf(result)) // as of texts that are known to be
	case ok && limit.most == maxCompared:
		return comparison(cost, function, limit.size(args), args)
	}
	return cost
}

// visited are the functions whose cost is that of all values in their first argument.
var visited = map[string]bool{"isSorted": true, "sum": true, "max": true, "min": true, "indexOf": true, "lastIndexOf": true}

// comparison adds what n values that are compared cost to what a call does. nil is
// the interpreter's own.
func comparison(cost *uint64, function string, n int, args []ref.Val) *uint64 {
	if n == 0 {
		return cost
	}
	sum := traversal(3 * n) // counted, compared, and counted for this
	switch {
	case cost != nil:
		*sum += *cost
	case function == operators.In:
		*sum += uint64(size(args[1])) //nolint:gosec // no list has fewer elements than none
	}
	return sum
}

func traversal(bytes int) *uint64 {
	cost := uint64(math.Ceil(float64(bytes) * common.StringTraversalCostFactor))
	return &cost
}
