// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const maxName = 54 // so that worker-<name> is a name of a Service

var scriptName = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$`)

// CheckName says whether a script can have a name. Its error is an *[InvalidError].
func CheckName(name string) error {
	if !scriptName.MatchString(name) || len(name) > maxName {
		return invalid("scriptName", quoted(name)+" is not "+strconv.Itoa(maxName)+" lower-case letters, digits, - and _ at most, with a letter or digit at both ends")
	}
	return nil
}

// reservedPrefixes are beginnings of variables that the loader, the C library or workerd itself read
// from their environment. A script that is called ld would name the libraries that the
// process loads, by a key PRELOAD of its Secret.
var reservedPrefixes = []string{"LD_", "GLIBC_", "GCONV_", "MALLOC_", "TCMALLOC_", "ICU_", "OPENSSL_", "WORKERD_"}

// EnvPrefix returns what is put before the keys of a script's Secret: its name in upper
// case. No name of a variable begins with a digit, and none of a script's with what the
// process itself reads: those get an underscore in front.
func EnvPrefix(name string) string {
	prefix := strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_"
	digit := prefix[0] >= '0' && prefix[0] <= '9'
	if digit || slices.ContainsFunc(reservedPrefixes, func(r string) bool { return strings.HasPrefix(prefix, r) }) {
		return "_" + prefix
	}
	return prefix
}

// ServiceName returns the name of the Service of a script. Scripts whose names differ in -
// and _ alone have the same.
func ServiceName(name string) string { return "worker-" + strings.ReplaceAll(name, "_", "-") }

// PortName returns the name of the container port of a script. It has 15 characters at most,
// and stays when the number changes.
func PortName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "w-" + hex.EncodeToString(sum[:4])
}
