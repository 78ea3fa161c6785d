// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spokelet/spokelet/workers/script"
)

// validate returns why a placement cannot be served. Its messages contain no values.
func (p Placement) validate() error {
	for _, field := range []struct{ name, value string }{
		{"account", p.Account}, {"namespace on the hub", p.HubNamespace}, {"cluster", p.Cluster}, {"deploymentName", p.deploymentName()},
	} {
		if field.value == "" {
			return fmt.Errorf("%s: is empty", field.name)
		}
	}
	return errors.Join(p.validateNames(), p.validateSecrets())
}

// validateNames refuses workers with the same service, port name or port.
func (p Placement) validateNames() error {
	services, ports, numbers := map[string]string{}, map[string]string{}, map[int32]string{}
	for _, w := range p.Bundle.Spec.Workers {
		for _, err := range []error{
			reserve(services, script.ServiceName(w.WorkerName), w.WorkerName),
			reserve(ports, script.PortName(w.WorkerName), w.WorkerName),
			reserve(numbers, w.WorkerNumber, w.WorkerName),
		} {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func reserve[T comparable](taken map[T]string, what T, worker string) error {
	if other, ok := taken[what]; ok {
		return fmt.Errorf("workers %s and %s: both have %v", other, worker, what)
	}
	taken[what] = worker
	return nil
}

// validateSecrets refuses secrets that would keep pods from starting, or give a worker a variable of
// another one: the prefixes A_ and A_B_ may produce the same name from two keys.
func (p Placement) validateSecrets() error {
	variables := map[string]string{}
	for _, w := range p.Bundle.Spec.Workers {
		// The image has the names of the script's own prefix, which script chooses so that
		// no name means something to the process itself.
		if want := script.EnvPrefix(w.WorkerName); w.EnvPrefix != want {
			return fmt.Errorf("worker %s: envPrefix %s is not %s", w.WorkerName, w.EnvPrefix, want)
		}
		if w.SecretRef == "" {
			continue
		}
		data, known := p.Secrets[w.Release]
		switch {
		case w.Release == "":
			return fmt.Errorf("worker %s: has secrets and no release", w.WorkerName)
		case !known:
			return fmt.Errorf("worker %s: the secrets of release %s are missing", w.WorkerName, w.Release)
		case w.Release == p.pullSecretName():
			return fmt.Errorf("worker %s: release %s has the name of the pull secret", w.WorkerName, w.Release)
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			if err := reserve(variables, w.EnvPrefix+key, w.WorkerName); err != nil {
				return fmt.Errorf("environment: %w", err)
			}
		}
	}
	return nil
}
