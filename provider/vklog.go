// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// vkLogger gives virtual-kubelet's warnings and errors to logr. The rest it
// drops: below warnings the library logs every step of every lease.
type vkLogger struct {
	logger logr.Logger
	err    error
}

var _ log.Logger = vkLogger{}

func (l vkLogger) Debug(...any)          {}
func (l vkLogger) Debugf(string, ...any) {}
func (l vkLogger) Info(...any)           {}
func (l vkLogger) Infof(string, ...any)  {}

func (l vkLogger) Warn(args ...any)                  { l.warn(fmt.Sprint(args...)) }
func (l vkLogger) Warnf(format string, args ...any)  { l.warn(fmt.Sprintf(format, args...)) }
func (l vkLogger) Error(args ...any)                 { l.fail(fmt.Sprint(args...)) }
func (l vkLogger) Errorf(format string, args ...any) { l.fail(fmt.Sprintf(format, args...)) }

// Fatal does not end the process: the library of one node must not decide that.
func (l vkLogger) Fatal(args ...any)                 { l.fail(fmt.Sprint(args...)) }
func (l vkLogger) Fatalf(format string, args ...any) { l.fail(fmt.Sprintf(format, args...)) }

func (l vkLogger) warn(message string) {
	l.logger.V(1).Info("virtual kubelet warns", "message", message, "error", l.err)
}

func (l vkLogger) fail(message string) {
	if errors.Is(l.err, context.Canceled) {
		return // the node is being stopped
	}
	err := l.err
	if err == nil {
		err = errors.New(message)
	}
	l.logger.Error(err, "virtual kubelet failed", "message", message)
}

func (l vkLogger) WithField(name string, value any) log.Logger {
	// A patch holds the whole node; the error beside it says enough.
	if name == "patch" {
		return l
	}
	return vkLogger{logger: l.logger.WithValues(name, value), err: l.err}
}

func (l vkLogger) WithFields(fields log.Fields) log.Logger {
	logger := l.logger
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		logger = logger.WithValues(name, fields[name])
	}
	return vkLogger{logger: logger, err: l.err}
}

func (l vkLogger) WithError(err error) log.Logger {
	return vkLogger{logger: l.logger, err: err}
}
