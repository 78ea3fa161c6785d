// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/spokelet/spokelet/workers/httpclient"
	"github.com/spokelet/spokelet/workers/truncate"
)

var (
	// ErrMissing: the registry has no such image.
	ErrMissing = errors.New("the registry has no such image")
	// ErrUnavailable: the registry does not answer, says that it cannot now, or is full. It
	// is worth trying again.
	ErrUnavailable = errors.New("the registry is not available")
	// ErrDenied: the registry refuses the operator's credentials. That is no fault of an
	// account: it is ErrUnavailable too. Some registries say so of what they do not have.
	ErrDenied = fmt.Errorf("the registry refuses the operator: %w", ErrUnavailable)
	// ErrUnsupported: the registry does not delete.
	ErrUnsupported = errors.New("the registry does not support it")
)

// maxAnswerBytes bounds what is repeated of an answer.
const maxAnswerBytes = 256

// classify maps an error of the library to one of the package. The context is the caller's: its
// cancellation is no failure of the registry.
func classify(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled
	}
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		return classifyAnswer(answer)
	}
	if isNetworkError(err) {
		return fmt.Errorf("%w: %w", ErrUnavailable, httpclient.StableError(err))
	}
	return err
}

func classifyAnswer(answer *transport.Error) error {
	switch status := answer.StatusCode; {
	case status == http.StatusNotFound:
		return ErrMissing
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fmt.Errorf("%w: %s", ErrDenied, describeAnswer(answer))
	case status == http.StatusMethodNotAllowed:
		return ErrUnsupported
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return fmt.Errorf("%w: %s", ErrUnavailable, describeAnswer(answer))
	default:
		return fmt.Errorf("the registry refuses it: %s", describeAnswer(answer))
	}
}

// describeAnswer describes an answer without the URL, which differs for each upload.
func describeAnswer(answer *transport.Error) string {
	text := fmt.Sprintf("it answers %d", answer.StatusCode)
	if answer.Request != nil {
		text += " to " + answer.Request.Method
	}
	said := []string{text}
	for _, diagnostic := range answer.Errors {
		said = append(said, fmt.Sprintf("%s: %s", diagnostic.Code, diagnostic.Message))
	}
	text = strings.Join(said, "; ")
	return truncate.Text(text, maxAnswerBytes)
}

func isNetworkError(err error) bool {
	_, isNetwork := errors.AsType[net.Error](err)
	return isNetwork || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, context.Canceled)
}
