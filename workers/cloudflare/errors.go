// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"context"
	"errors"
	"net/http"

	"github.com/spokelet/spokelet/workers/access"
	"github.com/spokelet/spokelet/workers/deployer"
	"github.com/spokelet/spokelet/workers/quota"
	"github.com/spokelet/spokelet/workers/script"
	"github.com/spokelet/spokelet/workers/store"
	"github.com/spokelet/spokelet/workers/tail"
	"github.com/spokelet/spokelet/workers/upload"
	"github.com/spokelet/spokelet/workers/version"
)

// Codes of Cloudflare's API, as its documentation and wrangler have them.
const (
	codeNoRoute        = 7003
	codeUnauthorized   = 9109 // one clean error in wrangler, where 10000 has it ask who it is
	codeNoCredentials  = 9106
	codeTooMany        = 10429
	codeScriptNotFound = 10007
	codeInternal       = 10013
	codeNotSupported   = 10015
	codeInvalid        = 10021
	codeTooLarge       = 10027
	codeConflict       = 10079
	codeNotLatest      = 10215
	codeSecretsChanged = 10220
	codeNoVersion      = 10222
	codeNoService      = 10090
	codeUnavailable    = 10013
	codeNoSecret       = 10056
	codeInherit        = 10057 // wrangler then says what to do about required secrets
)

const notFound = "This Worker does not exist on your account."

// toAPIError converts an error for clients. Unknown errors are not disclosed.
func toAPIError(err error) (failed *apiError, known bool) {
	if already, ok := errors.AsType[*apiError](err); ok {
		return already, true
	}
	if secrets, ok := errors.AsType[*deployer.SecretsChangedError](err); ok {
		return newAPIError(http.StatusConflict, codeSecretsChanged, secrets.Error()), true
	}
	if missing, ok := errors.AsType[*deployer.InheritError](err); ok {
		return newAPIError(http.StatusBadRequest, codeInherit, missing.Error()), true
	}
	if bad, ok := errors.AsType[*upload.Error](err); ok {
		return uploadError(bad), true
	}
	if _, ok := errors.AsType[*script.InvalidError](err); ok {
		return newAPIError(http.StatusBadRequest, codeInvalid, err.Error()), true
	}
	for _, class := range errorClasses {
		if !errors.Is(err, class.is) {
			continue
		}
		text := class.text
		if text == "" {
			text = err.Error()
		}
		return newAPIError(class.status, class.code, text), true
	}
	return newAPIError(http.StatusInternalServerError, codeInternal, "an internal error; the log of spokelet-workers api has it"), false
}

// errorClasses maps known errors, in the order of the checks. An empty text stands for that of the
// error.
var errorClasses = []struct {
	is           error
	status, code int
	text         string
}{
	{access.ErrInvalidToken, http.StatusUnauthorized, codeUnauthorized, "Invalid access token"},
	{access.ErrForbidden, http.StatusForbidden, codeUnauthorized, ""},
	{access.ErrUnavailable, http.StatusServiceUnavailable, codeUnavailable, "the hub is not available"},
	{deployer.ErrNotOpened, http.StatusForbidden, codeUnauthorized, ""},
	{deployer.ErrVersionNotFound, http.StatusNotFound, codeNoVersion, ""},
	{version.ErrNotFound, http.StatusNotFound, codeNoVersion, ""},
	{deployer.ErrNotFound, http.StatusNotFound, codeScriptNotFound, notFound},
	{deployer.ErrNotLatest, http.StatusConflict, codeNotLatest, ""},
	{deployer.ErrRejected, http.StatusBadRequest, codeInvalid, ""},
	{deployer.ErrInvalid, http.StatusBadRequest, codeInvalid, ""},
	{deployer.ErrConflict, http.StatusConflict, codeConflict, ""},
	// No 5xx: wrangler would ask again, and what it asked for is under way.
	{deployer.ErrPending, http.StatusConflict, codeConflict, ""},
	{upload.ErrIncomplete, http.StatusBadRequest, codeInvalid, ""},
	{tail.ErrNotFound, http.StatusNotFound, codeNoRoute, ""},
	{tail.ErrTooMany, http.StatusTooManyRequests, codeTooMany, ""},
	{quota.ErrExceeded, http.StatusServiceUnavailable, codeUnavailable, quota.ErrExceeded.Error()},
	{store.ErrTooLarge, http.StatusRequestEntityTooLarge, codeTooLarge, ""},
	{store.ErrUnavailable, http.StatusServiceUnavailable, codeUnavailable, ""},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, codeUnavailable, "it took too long"},
	{context.Canceled, http.StatusServiceUnavailable, codeUnavailable, "the request was canceled"},
}

func uploadError(bad *upload.Error) *apiError {
	switch bad.Kind {
	case upload.TooLarge:
		return newAPIError(http.StatusRequestEntityTooLarge, codeTooLarge, bad.Error())
	case upload.Unsupported:
		return newAPIError(http.StatusBadRequest, codeNotSupported, bad.Error())
	default:
		return newAPIError(http.StatusBadRequest, codeInvalid, bad.Error())
	}
}
