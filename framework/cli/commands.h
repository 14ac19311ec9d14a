// The subcommands of `trainer`: one file each, all with the signature of main. They throw
// brim::Error for bad usage and return the exit status otherwise.
#pragma once

namespace brim::cli {

/// trainer --recipe R …: trains.
int train_command(int argc, char** argv);
/// trainer bench --recipe R [--repeats N] [--steps N] [--sweep KEY=VALUES]…: measures throughput
int bench_command(int argc, char** argv);
/// trainer compare A B: two results, or recipes run in turn; its statuses are its own
int compare_command(int argc, char** argv);
/// trainer data pack|inspect|bench|tokenize …, and each of them
int data_command(int argc, char** argv);
int data_pack(int argc, char** argv);
int data_inspect(int argc, char** argv);
int data_bench(int argc, char** argv);
int data_tokenize(int argc, char** argv);
/// trainer devices [--watch] [--json] [--recipe R] [--devices LIST]
int devices_command(int argc, char** argv);
/// trainer doctor [--json]
int doctor_command(int argc, char** argv);
/// trainer eval RUN|CHECKPOINT [--recipe R] [--json]: loss and accuracy on evaluation data
int eval_command(int argc, char** argv);
int predict_command(int argc, char** argv);
/// trainer export RUN|CHECKPOINT --output FILE: weights as a safetensors file
int export_command(int argc, char** argv);
/// trainer recipe check|show|schema|reference [R]
int recipe_command(int argc, char** argv);
/// trainer doctor RUN [--watch|--prove] [--json]: diagnosis of a run
int doctor_run(int argc, char** argv);
/// trainer report RUN…: runs as one HTML file
int report_command(int argc, char** argv);
/// trainer tune --recipe R [--fresh] [--json]: finds the largest micro-batch
int tune_command(int argc, char** argv);
/// trainer version [--json]
int version_command(int argc, char** argv);

}  // namespace brim::cli
