// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spokelet/spokelet/workers/script"
)

const (
	// FirstPort is that of the first worker; the others follow.
	FirstPort = 8080

	// format is of all that an image is made of besides its input. It changes with what
	// this package, or whoever writes the image, makes of the same input.
	format = 2
)

// Input is what an image is made of.
type Input struct {
	// Account that the image is of. Images of two accounts are never the same one.
	Account string `json:"account"`
	// Workers in the order of their ports. Their order is that of their names, but
	// nothing here sorts them: it is the order of the list that counts.
	Workers []script.Worker `json:"workers"`
}

// Digest returns 64 hexadecimal digits that name the image. It is over all that the image
// holds, with the ETag and the size of a module for its content; where it is stored is not
// part of it.
func (in Input) Digest() string {
	identity := struct {
		Format int `json:"format"`
		Input
	}{format, in.withoutKeys()}
	raw, err := json.Marshal(identity)
	if err != nil {
		// The only value that could fail is the JSON of a binding, which script.New wrote.
		panic(fmt.Sprintf("bundle: digest of an input that was not checked: %v", err))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// withoutKeys copies what it changes.
func (in Input) withoutKeys() Input {
	in.Workers = slices.Clone(in.Workers)
	for i := range in.Workers {
		w := &in.Workers[i]
		w.Modules = slices.Clone(w.Modules)
		for j := range w.Modules {
			w.Modules[j].Key = ""
		}
	}
	return in
}

// Path returns where a module of a worker lies, from the folder of the configuration. It has
// nothing of the module's name, which the account chose.
func (in Input) Path(worker, module int) string {
	return fmt.Sprintf("%s/%d", serviceName(worker), module)
}

// serviceName is the name of a worker's service, socket and folder.
func serviceName(worker int) string { return fmt.Sprintf("w%d", worker) }
