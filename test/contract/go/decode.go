package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"time"
)

// Answers of the service, typed as the contract types them.

type instance struct {
	ID               string   `json:"id"`
	UUID             string   `json:"uuid"`
	Name             string   `json:"name"`
	Status           string   `json:"status"`
	CreatedAt        rfc3339  `json:"createdAt"`
	IP               *string  `json:"ip"`
	Port             *int     `json:"port"`
	CPUCores         string   `json:"cpuCores"`
	NumGPUs          string   `json:"numGpus"`
	Memory           string   `json:"memory"`
	Storage          int      `json:"storage"`
	EphemeralDiskGB  int      `json:"ephemeralDiskGB"`
	GPUType          string   `json:"gpuType"`
	Mode             string   `json:"mode"`
	Template         string   `json:"template"`
	HTTPPorts        []int    `json:"httpPorts"`
	SSHPublicKeys    []string `json:"sshPublicKeys"`
	K8s              bool     `json:"k8s"`
	Promoted         bool     `json:"promoted"`
	ProvisioningTime *rfc3339 `json:"provisioningTime"`
	RestoringTime    *rfc3339 `json:"restoringTime"`
	Failure          *string  `json:"failure"`
}

type created struct {
	UUID       string `json:"uuid"`
	Identifier int    `json:"identifier"`
	Key        string `json:"key"`
}

type addedKey struct {
	Success bool   `json:"success"`
	UUID    string `json:"uuid"`
	Key     string `json:"key"`
	Message string `json:"message"`
}

type modified struct {
	Identifier   string  `json:"identifier"`
	InstanceName string  `json:"instance_name"`
	GPUType      *string `json:"gpu_type"`
	Mode         *string `json:"mode"`
	NumGPUs      *int    `json:"num_gpus"`
	HTTPPorts    []int   `json:"http_ports"`
}

type snapshot struct {
	CreatedAt         int64  `json:"createdAt"`
	ID                string `json:"id"`
	MinimumDiskSizeGB int    `json:"minimumDiskSizeGb"`
	Name              string `json:"name"`
	Status            string `json:"status"`
}

type message struct {
	Message string `json:"message"`
}

type validated struct {
	Valid   bool   `json:"valid"`
	Email   string `json:"email"`
	OrgName string `json:"org_name"`
}

type failure struct {
	Code    int    `json:"code"`
	Error   string `json:"error"`
	Message string `json:"message"`
}

// A time that is there has to parse.
type rfc3339 string

func (t *rfc3339) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		return err
	}
	*t = rfc3339(text)
	return nil
}

// decode is encoding/json with DisallowUnknownFields; besides, no null anywhere, nothing after the value, every
// field of the struct there unless it is a pointer, and none of those "".
func decode(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return fmt.Errorf("more follows the value: %v", err)
	}
	var plain any
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	return complete(plain, reflect.TypeOf(into).Elem(), "answer")
}

func complete(value any, kind reflect.Type, where string) error {
	if value == nil {
		return fmt.Errorf("%s is null", where)
	}
	switch found := value.(type) {
	case []any:
		for index, item := range found {
			if err := complete(item, kind.Elem(), fmt.Sprintf("%s[%d]", where, index)); err != nil {
				return err
			}
		}
	case map[string]any:
		if kind.Kind() == reflect.Map {
			for name, item := range found {
				if err := complete(item, kind.Elem(), where+"."+name); err != nil {
					return err
				}
			}
			return nil
		}
		return completeStruct(found, kind, where)
	}
	return nil
}

func completeStruct(found map[string]any, kind reflect.Type, where string) error {
	for index := 0; index < kind.NumField(); index++ {
		field := kind.Field(index)
		name := field.Tag.Get("json")
		value, there := found[name]
		optional := field.Type.Kind() == reflect.Pointer
		if !there && optional {
			continue
		}
		if !there {
			return fmt.Errorf("%s.%s is missing", where, name)
		}
		if optional && value == "" {
			return fmt.Errorf("%s.%s is \"\" instead of absent", where, name)
		}
		if err := complete(value, field.Type, where+"."+name); err != nil {
			return err
		}
	}
	return nil
}
