// The subcommands of `trainer`, one file each.
#pragma once

#include "framework/cli/command.h"

namespace brim::cli {

Command train_command();
Command tune_command();
Command eval_command();
Command predict_command();
Command export_command();
Command sweep_command();
Command sweep_status_command();
Command sweep_pause_command();
Command sweep_resume_command();
Command sweep_cancel_command();
Command sweep_add_command();
Command bench_command();
Command compare_command();
Command doctor_command();
Command profile_command();
Command report_command();
Command watch_command();
Command audit_command();
Command plan_command();
Command devices_command();
Command history_command();
Command recipe_check_command();
Command recipe_show_command();
Command recipe_schema_command();
Command recipe_reference_command();
Command data_inspect_command();
Command data_pack_command();
Command data_tokenize_command();
Command data_bench_command();
Command help_command();
Command completion_command();
Command version_command();

}  // namespace brim::cli
