// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conditionrules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/spokelet/spokelet/agent/work/cputime"
)

const (
	// maxExpression bounds an expression's length in bytes: its compilation takes some
	// hundred times as much memory.
	maxExpression = 16 << 10
	// maxPrograms and maxCacheLength, of their expressions in bytes, bound the cache;
	// other programs are compiled again when they are needed.
	maxPrograms    = 512
	maxCacheLength = 64 << 10
	// maxTime bounds the processor time of the expressions of one manifest for one object:
	// an expression of low cost may be slow.
	maxTime = time.Second
	// maxObject bounds the strings of the object of an expression, in bytes: the cost of
	// a call is known only after it.
	maxObject = 8 << 20
)

var (
	errBudget     = errors.New("validation failed due to running out of cost budget, no further expressions of this manifest will be run")
	errTime       = fmt.Errorf("validation failed due to running out of time, the expressions of a manifest may take %s", maxTime)
	errObject     = fmt.Errorf("object is larger than %d bytes, no expression is run on it", maxObject)
	errExpression = fmt.Errorf("expression is longer than %d bytes", maxExpression)
)

// Compiler compiles expressions and caches their programs. A process needs one; several
// goroutines may use it.
type Compiler struct {
	// environment is created on first use.
	environment func() (*celEnvironment, error)
	programs    *programCache
}

// celEnvironment is the environment of expressions, with the overloads of the limited
// functions.
type celEnvironment struct {
	*cel.Env
	overloads map[string]*functions.Overload
}

// NewCompiler returns a compiler with an empty cache.
func NewCompiler() *Compiler {
	return &Compiler{environment: sync.OnceValues(newEnvironment), programs: newProgramCache()}
}

// program returns the program of an expression. Two goroutines may compile the same
// expression concurrently.
func (c *Compiler) program(expression string) (cel.Program, error) {
	if len(expression) > maxExpression {
		return nil, errExpression
	}
	if kept, ok := c.programs.get(expression); ok {
		return kept.Program, kept.err
	}
	p, err := c.compile(expression)
	c.programs.add(cachedProgram{expression: expression, Program: p, err: err})
	return p, err
}

func (c *Compiler) compile(expression string) (cel.Program, error) {
	env, err := c.environment()
	if err != nil {
		return nil, fmt.Errorf("failed to make CEL environment: %w", err)
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	return env.Program(ast,
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
		cel.CostLimit(celconfig.PerCallLimit),
		cel.CustomDecoratorV2(limitCalls(env.overloads)),
		cel.CostTracking(&costEstimator{}),
		cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
		cel.InterruptCheckFrequency(celconfig.CheckFrequency),
	)
}

// newEnvironment declares what OCM's does: Kubernetes' libraries, hasConditions,
// and the variables object and, for messages, result.
func newEnvironment() (*celEnvironment, error) {
	env, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(),
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		cel.CostEstimatorOptions(checker.PresenceTestHasCost(false)),
		cel.ASTValidators(
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
			cel.ValidateRegexLiterals(),
		),
		ext.Strings(ext.StringsVersion(2)),
		library.Lists(library.ListsVersion(0)),
		library.Regex(),
		library.URLs(),
		library.Quantity(),
		library.IP(),
		library.CIDR(),
		library.Format(),
		library.SemverLib(library.SemverVersion(1)),
		cel.Function("hasConditions", cel.Overload("has_conditions_map", []*cel.Type{cel.DynType}, cel.BoolType,
			cel.UnaryBinding(hasConditions))),
		cel.Variable("object", cel.DynType),
		cel.Variable("result", cel.BoolType),
	)
	if err != nil {
		return nil, err
	}
	own, err := findOverloads(env)
	if err != nil {
		return nil, err
	}
	return &celEnvironment{Env: env, overloads: own}, nil
}

// hasConditions reports whether a map has a list of conditions: an object in its
// status, or a status itself.
func hasConditions(v ref.Val) ref.Val {
	m, ok := v.(traits.Mapper)
	if !ok {
		return types.False
	}
	if status, found := m.Find(types.String("status")); found {
		if inner, ok := status.(traits.Mapper); ok {
			m = inner
		}
	}
	conditions, found := m.Find(types.String("conditions"))
	if !found {
		return types.False
	}
	_, isList := conditions.(traits.Lister)
	return types.Bool(isList)
}

// evaluate evaluates an expression within the rest of the manifest's budgets.
func (r *evaluation) evaluate(expression string, variables map[string]any) (ref.Val, error) {
	program, err := r.compiler.program(expression)
	if err != nil {
		return nil, err
	}
	switch {
	case r.isObjectTooLarge():
		return nil, errObject
	case r.budget <= 0:
		return nil, errBudget
	case r.time <= 0:
		return nil, errTime
	}
	value, err := r.runProgram(program, variables)
	if err != nil {
		return nil, err
	}
	if r.budget < 0 {
		return nil, errBudget
	}
	return value, nil
}

// runProgram runs a program in the rest of the time, which excludes its compilation.
func (r *evaluation) runProgram(program cel.Program, variables map[string]any) (ref.Val, error) {
	ctx, end := cputime.Limit(context.Background(), r.time, errTime)
	value, details, err := program.ContextEval(ctx, variables)
	r.time -= end()
	r.chargeCost(details)
	if errors.Is(err, interpreter.InterruptError{}) {
		r.time = 0
		return nil, errTime
	}
	return value, err
}

// isObjectTooLarge reports whether the object exceeds the limit for expressions.
func (r *evaluation) isObjectTooLarge() bool {
	if !r.measured {
		r.measured, r.tooLarge = true, textLength(r.object, maxObject) > maxObject
	}
	return r.tooLarge
}

// textLength returns the length of the strings in a value, and one for each other value. It stops
// counting once limit is exceeded.
func textLength(value any, limit int) int {
	n := 1
	switch v := value.(type) {
	case string:
		n += len(v)
	case []any:
		for _, child := range v {
			if n > limit {
				break
			}
			n += textLength(child, limit-n)
		}
	case map[string]any:
		for key, child := range v {
			if n > limit {
				break
			}
			n += len(key) + textLength(child, limit-n)
		}
	}
	return n
}

// chargeCost subtracts the cost of a run from the budget; an unknown cost exhausts it.
func (r *evaluation) chargeCost(details *cel.EvalDetails) {
	if details == nil || details.ActualCost() == nil || *details.ActualCost() > math.MaxInt64 {
		r.budget = -1
		return
	}
	r.budget -= int64(*details.ActualCost()) //nolint:gosec // bounded by the line above
}

func (r *evaluation) evalBool(expression string) (bool, error) {
	// The expression of a condition has no variable result, which it determines.
	value, err := r.evaluate(expression, map[string]any{"object": r.object})
	if err != nil {
		return false, err
	}
	holds, ok := value.(types.Bool)
	if !ok {
		return false, fmt.Errorf("expression %q returned %s, not bool", truncateExpression(expression), value.Type().TypeName())
	}
	return bool(holds), nil
}

func (r *evaluation) evalString(expression string, result bool) (string, error) {
	value, err := r.evaluate(expression, map[string]any{"object": r.object, "result": result})
	if err != nil {
		return "", err
	}
	text, ok := value.(types.String)
	if !ok {
		return "", fmt.Errorf("message expression %q returned %s, not string", truncateExpression(expression), value.Type().TypeName())
	}
	return string(text), nil
}

// truncateExpression shortens an expression that a message quotes.
func truncateExpression(expression string) string {
	const enough = 256
	if len(expression) <= enough {
		return expression
	}
	return expression[:enough] + "..."
}
