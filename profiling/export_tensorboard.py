#!/usr/bin/env python3
"""export_tensorboard.py RUN [RUN ...] --out LOGDIR: writes runs for TensorBoard, each in a
directory of LOGDIR.

Then: tensorboard --logdir LOGDIR. Needs only Python: event files are records of protocol buffers,
which this script writes field by field. Steps are counted from the beginning of the run. The
scalars of steps (loss, lr, accuracy, remote_rows) and those of epochs (loss, seconds,
wait_fraction, validation and test) have the same axis, and the times at which they were written.
The settings of the config become hyperparameters. --mlflow also sends all to MLflow, and --wandb
writes it to a run of Weights & Biases that stays offline in LOGDIR (`wandb sync` sends it); these
must be installed then.
"""

import argparse
import json
import os
import struct
import sys

STEP = ("loss", "lr", "accuracy", "wait_seconds", "remote_rows")
EPOCH = ("loss", "seconds", "wait_fraction", "remote_rows")
EVAL = ("valid_metric", "valid_accuracy", "test_metric", "test_accuracy")


def crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc32c_table()


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, kind, data):
    """A field of a protocol buffer: kind 0 a whole number, 1 a double, 2 bytes, 5 a float."""
    key = varint(number << 3 | kind)
    if kind == 0:
        return key + varint(data)
    if kind == 2:
        return key + varint(len(data)) + data
    return key + struct.pack("<d" if kind == 1 else "<f", data)


def event(when, step, value):
    return field(1, 1, when) + field(2, 0, step) + value


def scalar(tag, x):
    return field(5, 2, field(1, 2, field(1, 2, tag.encode()) + field(2, 5, x)))


def record(data):
    """A record of an event file: length, its checksum, data, its checksum."""
    length = struct.pack("<Q", len(data))
    crc = [struct.pack("<I", masked_crc(x)) for x in (length, data)]
    return length + crc[0] + data + crc[1]


def settings(run):
    """The config of a run: {"train.lr": "0.01"}. The program writes sections of one level."""
    found, section = {}, ""
    with open(os.path.join(run, "config.yaml"), encoding="utf-8") as f:
        for line in f:
            key, colon, value = line.rstrip("\n").partition(":")
            if colon and not line.startswith((" ", "#")):
                section = key
            elif colon and value.strip():
                found[f"{section}.{key.strip()}"] = value.strip().strip('"')
    return found


def hyperparameters(run, when):
    """The event by which TensorBoard's page of hyperparameters knows a run: a SessionStartInfo."""
    def value(text):
        try:
            return field(2, 1, float(text))
        except ValueError:
            return field(3, 2, text.encode())

    pairs = b"".join(field(1, 2, field(1, 2, key.encode()) + field(2, 2, value(text)))
                     for key, text in sorted(settings(run).items()))
    content = field(3, 2, pairs + field(4, 2, name_of(run).encode()) + field(5, 1, when))
    plugin = field(1, 2, field(1, 2, b"hparams") + field(2, 2, content))
    nothing = field(1, 0, 1) + field(2, 2, field(2, 2, field(1, 0, 1))) + field(5, 5, 0.0)
    tag = field(1, 2, b"_hparams_/session_start_info")
    return field(1, 1, when) + field(5, 2, field(1, 2, tag + field(8, 2, nothing) + field(9, 2, plugin)))


def read_metrics(run):
    """The records of a run. A last line that is cut short, as of a killed run, is left
    out."""
    path = os.path.join(run, "metrics.jsonl")
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            try:
                yield json.loads(line)
            except ValueError:
                print(f"note: {path}: line {number} is left out: it is no JSON", file=sys.stderr)


def scalars(run):
    """(time, tag, step, value) of a run, in order. Runs of older versions only have the time of the
    file."""
    step = 0
    when = os.path.getmtime(os.path.join(run, "metrics.jsonl"))
    for line in read_metrics(run):
        kind = line.get("kind")
        kinds = {"step": (STEP, "step/"), "epoch": (EPOCH, "epoch/"), "eval": (EVAL, "eval/")}
        names, prefix = kinds.get(kind, ((), ""))
        if kind == "step":
            step += 1
        for name in names:
            if isinstance(line.get(name), (int, float)):
                yield line.get("time", when), prefix + name, step, float(line[name])


def name_of(run):
    return os.path.basename(os.path.abspath(run))


def write_events(run, out):
    directory = os.path.join(out, name_of(run))
    os.makedirs(directory, exist_ok=True)
    when = os.path.getmtime(os.path.join(run, "metrics.jsonl"))
    path = os.path.join(directory, f"events.out.tfevents.{int(when)}.halognn")
    count = 0
    with open(path, "wb") as f:
        first, *_ = [time for time, *_ in scalars(run)] or [when]
        f.write(record(field(1, 1, first) + field(3, 2, b"brain.Event:2")))
        f.write(record(hyperparameters(run, first)))
        for time, tag, step, value in scalars(run):
            f.write(record(event(time, step, scalar(tag, value))))
            count += 1
    return path, count


def log_mlflow(run):
    import mlflow

    client, rows = mlflow.MlflowClient(), list(scalars(run))
    # start_run would begin and end the run now
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "Default")
    known = client.get_experiment_by_name(name)
    experiment = os.environ.get("MLFLOW_EXPERIMENT_ID") or (
        known.experiment_id if known else client.create_experiment(name))
    times = [int(time * 1000) for time, *_ in rows]
    id = client.create_run(experiment, start_time=times[0] if times else None,
                           run_name=name_of(run)).info.run_id
    for name in ("config.yaml", "summary.json", "model.safetensors"):
        if os.path.exists(os.path.join(run, name)):
            client.log_artifact(id, os.path.join(run, name))
    batch = [mlflow.entities.Metric(tag, value, at, step)
             for at, (_, tag, step, value) in zip(times, rows)]
    for begin in range(0, len(batch), 1000):
        client.log_batch(id, metrics=batch[begin:begin + 1000])
    params = [mlflow.entities.Param(*pair) for pair in settings(run).items()]
    for begin in range(0, len(params), 100):
        client.log_batch(id, params=params[begin:begin + 100])
    client.set_terminated(id, end_time=times[-1] if times else None)


def log_wandb(run, out):
    import wandb

    rows = {}
    for time, tag, step, value in scalars(run):
        rows.setdefault(step, {"_timestamp": time})[tag] = value
    with wandb.init(mode="offline", dir=out, project="halognn", name=name_of(run),
                    config=settings(run), settings=wandb.Settings(silent=True)) as session:
        for step, row in sorted(rows.items()):
            session.log(row, step=step)
        path = os.path.join(run, "summary.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                session.summary.update({key: value for key, value in json.load(f).items()
                                        if isinstance(value, (int, float, str))})


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("runs", nargs="+", metavar="RUN")
    p.add_argument("--out", required=True, metavar="LOGDIR", help="the directory for TensorBoard")
    p.add_argument("--mlflow", action="store_true",
                   help="log to MLflow as well (MLFLOW_TRACKING_URI)")
    p.add_argument("--wandb", action="store_true",
                   help="write a run of Weights & Biases, offline, as well")
    o = p.parse_args()
    names = [name_of(run) for run in o.runs]
    if len(set(names)) < len(names):
        sys.exit("two runs have the same name; export them into different directories")
    for run in o.runs:
        try:
            path, count = write_events(run, o.out)
            if o.mlflow:
                log_mlflow(run)
            if o.wandb:
                log_wandb(run, o.out)
        except FileNotFoundError as e:
            sys.exit(f"{run} holds no run: {e}; give the run.dir of a `halognn train`")
        except ImportError as e:
            sys.exit(f"{e}; --mlflow and --wandb need theirs: pip install mlflow wandb")
        print(f"{path}: {count} scalars")


if __name__ == "__main__":
    main()
