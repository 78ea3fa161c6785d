// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"net/http/httptrace"
)

// tracelessContext is a caller's context without the hooks of httptrace. HTTP/2 calls
// them in the goroutine that reads the session's connection, and with the
// connection's locks held: a hook that waits for its caller, as
// httputil.ReverseProxy's does which passes on 1xx answers, stops every stream
// of the cluster. Without hooks the transport drops 1xx answers.
type tracelessContext struct{ context.Context }

// withoutTrace hides the hooks of ctx, and reports whether it has any.
func withoutTrace(ctx context.Context) (without context.Context, hidden bool) {
	if httptrace.ContextClientTrace(ctx) == nil {
		return ctx, false
	}
	return tracelessContext{ctx}, true
}

// Value hides the hooks. All other values stay, among them the one by which package
// context knows that a child needs no goroutine of its own.
func (c tracelessContext) Value(key any) any {
	v := c.Context.Value(key)
	if _, hooks := v.(*httptrace.ClientTrace); hooks {
		return nil
	}
	return v
}
