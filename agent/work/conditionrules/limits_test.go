// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conditionrules

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/internal/testing/testscale"
)

const (
	replaceRefused = "replace: result is larger than 1048576 bytes"
	joinRefused    = "join: result is larger than 1048576 bytes"
	formatRefused  = "format: result is larger than 1048576 bytes"
	addRefused     = "+: result is larger than 1048576 bytes or elements"
)

// sharedEnvironment is one for all tests, as a process has one. To make it takes as long as to
// compile a hundred expressions.
var sharedEnvironment = sync.OnceValues(newEnvironment)

// newTestCompiler is NewCompiler with an environment that other tests have, too.
func newTestCompiler() *Compiler {
	return &Compiler{environment: sharedEnvironment, programs: newProgramCache()}
}

// newLargeObject has texts of 1 KiB (k), one byte less (k1), 512 KiB (half) and 1 MiB (m).
func newLargeObject() *unstructured.Unstructured {
	text := func(n int) string { return strings.Repeat("x", n) }
	return &unstructured.Unstructured{Object: map[string]any{
		"k": text(1 << 10), "k1": text(1<<10 - 1), "half": text(maxResultSize / 2), "m": text(maxResultSize),
		"halves": []any{text(maxResultSize / 2), text(maxResultSize / 2)}, "less": []any{text(maxResultSize / 2), text(maxResultSize/2 - 1)},
		"ten": []any{int64(0), int64(1), int64(2), int64(3), int64(4), int64(5), int64(6), int64(7), int64(8), int64(9)},
	}}
}

func TestResultSizesAreLimited(t *testing.T) {
	doubled := "[[1]]" + strings.Repeat(".map(a, a + a)", 60) + "[0]"
	nest := "[[1]]" + strings.Repeat(".map(a, [a, a])", 60)
	cases := map[string]struct{ reason, expression, want string }{
		"replace at the bound":         {"1 MiB is made", "object.k.replace('x', object.k).size() == 1048576", ""},
		"replace beyond it":            {"the ends match too", "object.k.replace('', object.k).size() > 0", replaceRefused},
		"replace that ends there":      {"the limit counts", "object.k.replace('', object.k, 1023).size() == 1048576 ", ""},
		"replace one more":             {"the limit counts", "object.k.replace('', object.k, 1024).size() > 0", replaceRefused},
		"replace without limit":        {"-1 is none", "object.k.replace('', object.k, -1).size() > 0", replaceRefused},
		"replace of what replace made": {"nested", "object.k.replace('x', 'xx').replace('x', object.k).size() > 0", replaceRefused},
		"replace in a map":             {"the loop's results are bounded as well", "object.ten.map(i, object.k.replace('', object.k)).size() > 0", replaceRefused},
		"many results at once":         {"cost what they take", "object.ten.map(i, object.k.replace('x', object.k)).size() == 10", "cost limit exceeded"},
		"refusals one after the other": {"cost too", "object.ten.exists(i, object.ten.exists(j, object.k.replace('', object.k) == ''))", "cost limit exceeded"},
		"join at the bound":            {"1 MiB is made", "object.less.join(',').size() == 1048576", ""},
		"join without separator":       {"1 MiB is made", "object.halves.join().size() == 1048576", ""},
		"join beyond it":               {"a separator is too much", "object.halves.join(',').size() > 0", joinRefused},
		"join by what is long":         {"separators count", "object.k.split('').join(object.half).size() > 0", joinRefused},
		"join of what join made":       {"nested", "[object.halves.join(), 'x'].join().size() > 0", joinRefused},
		"join in a map":                {"is bounded as well", "object.ten.map(i, object.halves.join(',')).size() > 0", joinRefused},
		"join of no texts":             {"its error would print them", "dyn(" + nest + ").join() == ''", joinRefused},
		"format at the bound":          {"1 MiB is made", "'%s%s'.format(object.halves).size() == 1048576", ""},
		"format beyond it":             {"one byte more", "'%s.%s'.format(object.halves).size() > 0", formatRefused},
		"format in hex":                {"doubles", "'%x'.format([object.half]).size() == 1048576", ""},
		"format of more hex":           {"doubles", "'%x'.format([object.half + 'x']).size() > 0", formatRefused},
		"format of many":               {"clauses add up", "object.k.replace('x', '%s').format(object.k.split('').map(c, object.k + 'x')).size() > 0", formatRefused},
		"format with precision":        {"digits count", "'%.900000f%.900000f'.format([1.0, 1.0]).size() > 0", formatRefused},
		"format with an exponent":      {"digits count", "'%.2000000e'.format([1.0]).size() > 0", formatRefused},
		"format of a list":             {"its texts are quoted", "'%s'.format([object.halves]).size() > 0", formatRefused},
		"format of lists without end":  {"they are counted no further than the bound", "'%s'.format([" + nest + "]).size() > 0", formatRefused},
		"format of maps without end":   {"they are counted no further than the bound", "'%s'.format([[{'a': 1}]" + strings.Repeat(".map(a, {'a': dyn(a), 'b': dyn(a)})", 40) + "]) == ''", formatRefused},
		"format of what format made":   {"nested", "'%s%s'.format(['%s%s'.format(object.halves), 'x']).size() > 0", formatRefused},
		"format in a map":              {"is bounded as well", "object.ten.map(i, '%s%d'.format([object.m, i])).size() > 0", formatRefused},
		"a sum of texts at the bound":  {"1 MiB is made", "(object.half + object.half).size() == 1048576", ""},
		"a sum of texts beyond it":     {"one byte more", "(object.m + 'x').size() > 0", addRefused},
		"a sum of bytes at the bound":  {"1 MiB is made", "(bytes(object.half) + bytes(object.half)).size() == 1048576", ""},
		"a sum of bytes beyond it":     {"one byte more", "(bytes(object.m) + b'x').size() > 0", addRefused},
		"a text that doubles":          {"is bounded whatever it costs", "[object.k]" + strings.Repeat(".map(a, a + a)", 30) + ".size() > 0", addRefused},
		"a list that doubles":          {"what asks for all its elements cannot be stopped", doubled + ".size() > 0", addRefused},
	}
	compiler, obj := newTestCompiler(), newLargeObject()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := compiler.Compile([]workv1.ConditionRule{celRule("X", tc.expression)}).Eval(obj, 1)[0]
			if tc.want == "" {
				if got.Status != metav1.ConditionTrue {
					t.Errorf("%s: %v", tc.reason, got)
				}
				return
			}
			if got.Status != metav1.ConditionFalse || got.Reason != ReasonExpressionError || !strings.Contains(got.Message, tc.want) || len(got.Message) > 256 {
				t.Errorf("%s: %v", tc.reason, got)
			}
		})
	}
}

// Lists and maps that hold each other are compared no further than a bound.
func TestComparisonsAreLimited(t *testing.T) {
	list := func(n int) []any { // has n values with itself
		out := make([]any, n-1)
		for i := range out {
			out[i] = int64(i)
		}
		return out
	}
	// A text counts like one value for each 64 bytes, and takes no time to compare with itself.
	text := func(values int) string { return strings.Repeat("x", 64*(values-1)) }
	const most = 1 << 15
	texts := func(last string) string { return "[" + strings.Repeat("object.text, ", 15) + last + "]" }
	textsAt, textsOver := texts("object.rest"), texts("object.text")
	small := &unstructured.Unstructured{Object: map[string]any{"ten": list(11), "text": text(most), "rest": text(maxComparedValues - 15*most - 1)}}
	large := &unstructured.Unstructured{Object: map[string]any{"at": list(maxComparedValues), "over": list(maxComparedValues + 1), "few": list(3)}}
	nest := "[[1]]" + strings.Repeat(".map(a, [a, a])", 30)
	maps := "[{'a': dyn(1)}]" + strings.Repeat(".map(a, {'a': dyn(a), 'b': dyn(a)})", 30)
	refused := func(function string) string { return function + ": more than 524288 values to compare" }
	const field = "field of a message has more than 64 values"
	cases := map[string]struct{ reason, expression, want string }{
		"== at the bound":                {"no values are too many", "object.at == object.at", ""},
		"== beyond it on one side":       {"the smaller side counts", "!(object.at == object.over) && !(object.over == object.at)", ""},
		"== beyond it":                   {"one value more", "object.over == object.over", refused("==")},
		"== with little":                 {"the smaller side counts", "dyn(" + nest + ") != dyn([1]) && dyn(1) != dyn(" + nest + ")", ""},
		"== of nested lists":             {"they have values without end", nest + ".all(a, a == a)", refused("==")},
		"== of nested maps":              {"they have values without end", maps + ".all(a, a == a)", refused("==")},
		"== of optionals":                {"they have what they hold", "optional.of(" + nest + ") == optional.of(" + nest + ")", refused("==")},
		"== of optionals in lists":       {"they have what they hold", "[optional.of(" + nest + ")] == [optional.of(" + nest + ")]", refused("==")},
		"!= at the bound":                {"no values are too many", "!(" + textsAt + " != " + textsAt + ")", ""},
		"!= beyond it":                   {"one value more", textsOver + " != " + textsOver, refused("!=")},
		"!= of nested lists":             {"they have values without end", nest + ".all(a, a != a)", refused("!=")},
		"in at the bound":                {"no values are too many", "object.few in [object.at, object.few] && !(object.few in object.at)", ""},
		"in of nested lists":             {"they have values without end", nest + " in [" + nest + "]", refused("in")},
		"in of unknown type":             {"is the same function", "dyn(" + nest + ") in dyn([" + nest + "])", refused("in")},
		"in of little":                   {"no more is compared", "!(dyn([1]) in dyn([" + nest + "])) && !(dyn(1) in dyn(" + nest + "))", ""},
		"a key of a map":                 {"is not compared", "!(dyn(" + nest + ") in {'a': 1})", ""},
		"indexOf of nested lists":        {"they have values without end", "[" + nest + "].indexOf(" + nest + ") == 0", refused("indexOf")},
		"lastIndexOf of nested lists":    {"they have values without end", "dyn([" + nest + "]).lastIndexOf(" + nest + ") == 0", refused("lastIndexOf")},
		"indexOf a number":               {"its cost asks for all values", "dyn(" + nest + ").indexOf(1) == -1", ""},
		"max of nested lists":            {"its cost asks for all values", "dyn(" + nest + ").max() == 1", "no such overload"},
		"sum of nested lists":            {"its cost asks for all values", "dyn(" + nest + ").sum() == 1", "no such overload"},
		"isSorted of nested lists":       {"its cost asks for all values", "dyn(" + nest + ").isSorted()", "no such overload"},
		"refusals one after the other":   {"cost too", "object.ten.exists(i, object.ten.exists(j, " + textsOver + " == " + textsOver + "))", "cost limit exceeded"},
		"a message of little":            {"is the library's", "google.protobuf.Value{list_value: [1, 2]} == google.protobuf.ListValue{values: [1, 2]}", ""},
		"a message of nested lists":      {"it would be a copy of all", "google.protobuf.Value{list_value: " + nest + "} == null", field},
		"a message of nested maps":       {"it would be a copy of all", "google.protobuf.Struct{fields: " + maps + "[0]} == {}", field},
		"a message of what is not there": {"its error is told", "google.protobuf.Value{list_value: object.nothing} == null", "no such key"},
		"an optional field of a message": {"counts too", "google.protobuf.Value{?list_value: optional.of(" + nest + ")} == null", field},
	}
	compiler := newTestCompiler()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := compiler.Compile([]workv1.ConditionRule{celRule("X", tc.expression)})
			set.time *= 60
			on := small
			if strings.Contains(tc.expression, "object.at") || strings.Contains(tc.expression, "object.over") {
				on = large // its size is looked at each time
			}
			got := set.Eval(on, 1)[0]
			if tc.want == "" && got.Status != metav1.ConditionTrue || !strings.Contains(got.Message, tc.want) {
				t.Errorf("%s: %v", tc.reason, got)
			}
		})
	}
}

// What is refused was not made before.
func TestRefusedCallAllocatesNoResult(t *testing.T) {
	obj := &unstructured.Unstructured{Object: map[string]any{"s": strings.Repeat("x", 1<<16), "l": []any{strings.Repeat("x", 1<<20), "x"}}}
	for name, tc := range map[string]struct{ reason, expression string }{
		"replace": {"would make 4 GiB", "object.s.replace('', object.s) == ''"},
		"join":    {"would make 1 MiB", "object.l.join() == ''"},
		"format":  {"would make 1 MiB", "'%s%s'.format(object.l) == ''"},
		"+":       {"would make 1 MiB", "object.l[0] + object.l[1] == ''"},
	} {
		t.Run(name, func(t *testing.T) {
			set := newTestCompiler().Compile([]workv1.ConditionRule{celRule("X", tc.expression)})
			set.Eval(obj, 1) // compiles
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := set.Eval(obj, 1)[0]
			runtime.ReadMemStats(&after)
			if made := after.TotalAlloc - before.TotalAlloc; made > 1<<19 || !strings.HasPrefix(got.Message, name+": result is larger") {
				t.Errorf("%s: %d bytes were allocated: %v", tc.reason, made, got)
			}
		})
	}
}

// A call that is bounded costs no less than one that is not.
func TestLimitedCallsChargeCost(t *testing.T) {
	list := make([]any, 100) // the loops alone cost a tenth of the limit
	for i := range list {
		list[i] = strings.Repeat("x", 1<<10)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"l": list}}
	for name, expression := range map[string]string{
		"==":      "object.l.all(a, object.l.all(b, object.l == object.l))",
		"in":      "object.l.all(a, object.l.all(b, object.l in [object.l]))",
		"replace": "object.l.all(a, object.l.all(b, a.replace('y', b) != ''))",
		"join":    "object.l.all(a, object.l.all(b, [a, b].join() != ''))",
		"format":  "object.l.all(a, object.l.all(b, '%s'.format([a]) != ''))",
		"+":       "object.l.all(a, object.l.all(b, a + b != ''))",
	} {
		t.Run(name, func(t *testing.T) {
			set := newTestCompiler().Compile([]workv1.ConditionRule{celRule("X", expression)})
			set.time *= 60
			if got := set.Eval(obj, 1)[0]; !strings.Contains(got.Message, "cost limit exceeded") {
				t.Errorf("condition %v", got)
			}
		})
	}
}

// bothResults are two programs of an expression: the libraries' own, and one that is bounded.
type bothResults struct{ library, ours cel.Program }

func evaluateBothWays(t *testing.T, env *celEnvironment, expression string) (w bothResults) {
	t.Helper()
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	var err error
	if w.library, err = env.Program(ast, cel.EvalOptions(cel.OptOptimize)); err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	if w.ours, err = env.Program(ast, cel.CustomDecoratorV2(limitCalls(env.overloads)), cel.EvalOptions(cel.OptOptimize)); err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return w
}

// compare evaluates both programs and compares the values, or the errors. what says which.
func (w bothResults) compare(t *testing.T, variables map[string]any, what ...any) {
	t.Helper()
	outcome := func(program cel.Program) string {
		value, _, err := program.Eval(variables)
		if err != nil {
			return "error: " + err.Error()
		}
		return fmt.Sprintf("%s %v", value.Type().TypeName(), value.Value())
	}
	if diff := cmp.Diff(outcome(w.library), outcome(w.ours)); diff != "" {
		t.Errorf("%s: -library +ours\n%s", fmt.Sprint(what...), diff)
	}
}

func TestLimitedCallsReturnLibraryResults(t *testing.T) {
	env, err := sharedEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string]any{"object": newLargeObject().Object, "result": true}
	expressions := []string{
		"['a', 'b'].join()", "['a', 'ü', '世'].join('é')", "[].join(',')", "['a'].join(',')", "dyn([1, 2]).join(',')", "dyn('a').join()", "dyn(['a']).join(dyn(1))",
		"dyn(1).replace('a', 'b')", "'a'.replace(dyn(1), 'b')", "object.nothing.replace('a', 'b')",
		"'%s %d %f %.2f %e %.3e %b %x %X %o %%'.format(['ü', 1, 1.5, 2.0, 3.25, 4.5, 5, 'ab', b'\\xff', 8])", "'%s'.format([[1, 2.5, 'a\\n', b'b', {'k': [true, null]}]])",
		"'%s'.format([timestamp('2026-01-01T00:00:00Z')])", "'%s'.format([duration('1h')])", "'%s'.format([type(1)])", "'%f'.format([1e300])", "'%s'.format([[1e300, -1e300]])", "dyn('%.f').format([1.0])",
		"dyn('%s %s').format(['a'])", "dyn('a%').format(['a'])", "dyn('%').format([])", "dyn('%.').format([1.0])", "dyn('%.3').format([1.0])", "dyn('%.99999999999999999999f').format([1.0])", "dyn('%q').format([1])", "dyn('%d').format(['a'])", "dyn('x').format([1, 2])", "dyn(1).format([1])", "'a'.format(dyn(1))", "'%s'.format(object.halves.map(h, h.size()))",
		"'a' + 'ü'", "b'a' + b'b'", "[1] + [2, 3]", "1 + 2", "1u + 2u", "1.5 + 2.5", "dyn(1) + dyn(2)", "dyn('a') + dyn(1)", "dyn(1) + dyn('a')", "dyn([1]) + dyn('a')", "dyn(true) + dyn(1)", "dyn({}) + dyn({})", "dyn(null) + dyn(1)", "9223372036854775807 + 1",
		"duration('1h') + timestamp('2026-01-01T00:00:00Z')", "timestamp('2026-01-01T00:00:00Z') + duration('1h')", "duration('1h') + duration('1m')", "object.nothing + 'a'", "'a' + object.nothing", "[1, 2].map(i, i + 1) + [3]", "{'a': 'b' + 'c'}", "dyn(quantity('1')) + dyn(1)",
	}
	expressions = append(expressions, "1 in [1, 2, 3]", "'a' in ['b', 'c']", "dyn(1.0) in [1, 2]", "[1] in [[1], [2]]", "'a' in {'a': 1}", "object.k in [object.k1, object.k]", "'banana'.indexOf('an')", "'banana'.indexOf('an', 2)", "'banana'.lastIndexOf('an')", "[[1], [2], [1]].indexOf([1])", "[[1], [2], [1]].lastIndexOf([1])", "dyn(1).indexOf(1)", "dyn([1]).indexOf(dyn('a'), 2)")
	for _, s := range []string{"", "a", "aaa", "aüa世a", "banana"} {
		for _, old := range []string{"", "a", "aa", "ü", "ana", "no"} {
			for _, n := range []string{"", ", -1", ", -9223372036854775808", ", 0", ", 1", ", 2", ", 9223372036854775807"} {
				expressions = append(expressions, fmt.Sprintf("'%s'.replace('%s', 'né'%s)", s, old, n), fmt.Sprintf("'%s'.replace('%s', ''%s)", s, old, n))
			}
		}
	}
	for _, e := range expressions {
		evaluateBothWays(t, env, e).compare(t, variables, e)
	}
}

// TestLimitedCallsOfTwoValuesReturnLibraryResults compares what bounded functions make of every
// value of the list with every value, as variables. Literals are computed when an expression
// is compiled, which takes much longer: most pairs of them are left to SPOKELET_TEST_FULL.
func TestLimitedCallsOfTwoValuesReturnLibraryResults(t *testing.T) {
	shared, err := sharedEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	extended, err := shared.Extend(cel.Variable("a", cel.DynType), cel.Variable("b", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	env := &celEnvironment{Env: extended, overloads: shared.overloads}
	values := []string{"1", "1u", "1.0", "'a'", "b'a'", "null", "true", "[]", "{}", "[1, 2]", "[dyn(1.0), dyn(2u)]", "[1] + [2]", "[dyn(1), dyn('a'), dyn(null)]", "[dyn(1), dyn('a'), dyn(1)]", "[[1], [2]]", "{'a': [dyn(1), dyn({'b': 2})]}", "{'a': [dyn(1.0), dyn({'b': 2u})]}", "{1: 'a'}", "{1u: 'a'}", "object.ten", "object", "object.nothing", "[1][2]",
		"optional.none()", "optional.of([1])", "optional.of(1)", "[optional.of({'a': 1})]", "quantity('1')", "quantity('1k')", "duration('1h')", "timestamp('2026-01-01T00:00:00Z')", "type(1)", "[0.0/0.0]", "0.0/0.0"}
	calls := func(a, b string) []string {
		return []string{
			fmt.Sprintf("dyn(%s) == dyn(%s)", a, b), fmt.Sprintf("dyn(%s) != dyn(%s)", a, b), fmt.Sprintf("dyn(%s) in dyn(%s)", a, b),
			fmt.Sprintf("dyn(%s) in [dyn(1), dyn(%s)]", a, b), fmt.Sprintf("[dyn(1), dyn(%s), dyn(%s)].indexOf(dyn(%s))", a, b, b), fmt.Sprintf("dyn([dyn(%s), dyn(1), dyn(%s)]).lastIndexOf(dyn(%s))", a, b, b),
		}
	}
	object := newLargeObject().Object
	computed := make([]ref.Val, len(values)) // an error is a value, too
	for i, expression := range values {
		if computed[i], _, err = evaluateBothWays(t, env, expression).library.Eval(map[string]any{"object": object}); err != nil {
			computed[i] = types.WrapErr(err)
		}
	}
	for _, call := range calls("a", "b") {
		both := evaluateBothWays(t, env, call)
		for i, a := range computed {
			for j, b := range computed {
				both.compare(t, map[string]any{"object": object, "a": a, "b": b}, call, " with ", values[i], " and ", values[j])
			}
		}
	}
	distance := testscale.Of(17, 1) // of the second value's places
	for i, a := range values {
		for j := range values {
			if b := values[j]; i == j || (i+j)%distance == 0 {
				for _, call := range calls(a, b) {
					evaluateBothWays(t, env, call).compare(t, map[string]any{"object": object}, call)
				}
			}
		}
	}
}

// Sizes are exact for texts, and never less than what is made.
func TestEstimatedSizeIsNotBelowResult(t *testing.T) {
	env, err := sharedEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"1.7976931348623157e308", "-9223372036854775808", "18446744073709551615u", "'\\U0010ffff\\u200b\\x00\"'", "b'\\x00\\x01'", "true", "null", "[dyn([]), dyn({}), dyn([1e15, 1e16])]", "{'\\x00': ['\\x01']}",
		"timestamp('2026-01-01T00:00:00.123456789Z')", "duration('-2562047h47m16.854775807s')", "type(duration('1s'))", "[timestamp('2026-01-01T00:00:00.123456789Z')]", "[duration('-2562047h47m16.854775807s')]", "[type(1)]"} {
		for _, verb := range []string{"%s", "%d", "%f", "%e", "%.99f", "%.99e", "%b", "%x", "%X", "%o", "a%%%s%%"} {
			values := make([]ref.Val, 0, 2)
			for _, e := range []string{fmt.Sprintf("'%s'", verb), fmt.Sprintf("[%s]", value), fmt.Sprintf("dyn('%s').format([%s])", verb, value)} {
				ast, issues := env.Compile(e)
				if issues.Err() != nil {
					t.Fatalf("%s: %v", e, issues.Err())
				}
				program, err := env.Program(ast)
				if err != nil {
					t.Fatal(err)
				}
				if v, _, err := program.Eval(map[string]any{}); err == nil {
					values = append(values, v)
				}
			}
			if len(values) == 3 && formatSize(values[:2]) < byteLength(values[2]) {
				t.Errorf("%s of %s is bound by %d, and has %d", verb, value, formatSize(values[:2]), byteLength(values[2]))
			}
		}
	}
}
